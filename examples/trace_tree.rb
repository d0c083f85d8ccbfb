# frozen_string_literal: true

# Prints a trace from Jaeger as a tree. It takes a trace of both freight desks with functions of
# each, and with exceptions of both if there is one.
#
#   ruby trace_tree.rb http://127.0.0.1:16686
require "json"
require "net/http"

# A trace in the format of Jaeger's API.
class Trace
  SERVICES = %w[freight-desk freight-desk-python].freeze
  OURS = "probescope"

  # raised: {"ValueError at manifest.py:64" => 3}. depth: of recursive calls. Times in us.
  Span = Struct.new(*%i[id parent service name place start duration ours raised children depth])

  def initialize(data)
    @id = data["traceID"]
    @spans = data["spans"].map { |span| read(span, data["processes"]) }
    by_id = @spans.to_h { |span| [span.id, span] }
    @spans.each { |span| by_id[span.parent]&.children&.push(span) }
    @roots = @spans.reject { |span| by_id.key?(span.parent) }
  end

  attr_reader :id

  def size = @spans.size

  # Whether it has functions of each service.
  def whole? = @roots.size == 1 && services(&:ours) == SERVICES.size

  def start = @roots.first.start

  # Services with exceptions.
  def raising = services { |span| span.raised.any? }

  def print
    root = @roots.first
    puts "", format("trace %s: %.1f ms, %d spans, %d of them functions that probescope saw (-)",
                    @id, root.duration / 1e3, @spans.size, @spans.count(&:ours)), "", "   from ms   takes ms"
    fold(root)
    line(root, root.start, 0)
  end

  private

  def services(&block) = @spans.select(&block).map(&:service).uniq.size

  def read(span, processes)
    tags = tags(span["tags"])
    Span.new(span["spanID"], span["references"].first&.fetch("spanID"),
             processes.dig(span["processID"], "serviceName"), span["operationName"], place(tags),
             span["startTime"], span["duration"], ours?(tags), raised(span["logs"]), [], 1)
  end

  def tags(list) = list.to_h { |tag| tag.values_at("key", "value") }
  def ours?(tags) = tags.values_at("otel.scope.name", "otel.library.name").include?(OURS)
  def place(tags) = ("#{short(tags["code.file.path"])}:#{tags["code.line.number"]}" if tags["code.file.path"])

  def short(path) = path.split("/").last(2).join("/")

  def raised(logs)
    (logs || []).map { |log| tags(log["fields"]) }.filter_map do |fields|
      "#{fields["exception.type"]} at #{place(fields)}" if fields.key?("exception.type")
    end.tally
  end

  # Adds a function's recursive calls to the outermost call. open: enclosing calls, by name.
  def fold(span, open = {})
    open = { span.name => span, **open } if span.ours
    span.children = span.children.flat_map do |child|
      fold(child, open)
      outer = open[child.name] if child.ours
      next [child] unless outer

      outer.depth += 1
      outer.raised.merge!(child.raised) { |_, one, other| one + other }
      child.children
    end
  end

  def line(span, from, depth)
    indent = "  " * depth
    puts format("%10.1f %10.1f  #{indent}%s", (span.start - from) / 1e3, span.duration / 1e3,
                "#{span.ours ? "- " : "#{span.service}: "}#{span.name}#{"  #{span.place}" if span.place}" \
                "#{"  (#{span.depth} calls within each other)" if span.depth > 1}")
    span.raised.each { |what, times| puts "#{" " * 23}#{indent}    ! #{"#{times} x " if times > 1}#{what}" }
    span.children.sort_by(&:start).each { |child| line(child, from, depth + 1) }
  end
end

# Seconds until any trace with functions of both is accepted, until one is required, and after which
# a trace that does not grow counts as complete.
PATIENCE = 15
LIMIT = 90
SETTLED = 3

def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

# Returns the newest traces. sizes: {id => [spans, since when]} of earlier calls.
def traces(url, sizes)
  text = Net::HTTP.get(URI("#{url}/api/traces?service=#{Trace::SERVICES.last}&limit=40&lookback=1h"))
  found = JSON.parse(text)["data"].map { |data| Trace.new(data) }
  found.each { |trace| sizes[trace.id] = [trace.size, now] unless sizes.dig(trace.id, 0) == trace.size }
  found.select { |trace| trace.whole? && now - sizes[trace.id].last > SETTLED }
end

url = ARGV.fetch(0) { abort "usage: ruby trace_tree.rb http://127.0.0.1:16686" }
began = now
sizes = {}
best = nil
until best && (best.raising == Trace::SERVICES.size || now - began > PATIENCE)
  abort "traces: no trace of both desks within #{LIMIT} s" if now - began > LIMIT
  sleep 0.5
  # The oldest trace is left out: some of its calls began before the attach.
  best = traces(url, sizes).sort_by(&:start).drop(1).max_by(&:raising)
end
best.print
