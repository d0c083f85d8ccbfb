# frozen_string_literal: true

# Prints a trace out of Jaeger as a tree: one that both freight desks have had a part in, with functions of each, and with exceptions
# of both if there is one.
#
#   ruby trace_tree.rb http://127.0.0.1:16686
require "json"
require "net/http"

# A trace as Jaeger's API has it.
class Trace
  SERVICES = %w[freight-desk freight-desk-python].freeze
  OURS = "probescope"

  # children: Spans. raised: {"ValueError at manifest.py:64" => 3}. Times in us.
  Span = Struct.new(:id, :parent, :service, :name, :place, :start, :duration, :ours, :raised, :children)

  def initialize(data)
    @id = data["traceID"]
    @spans = data["spans"].map { |span| read(span, data["processes"]) }
    by_id = @spans.to_h { |span| [span.id, span] }
    @spans.each { |span| by_id[span.parent]&.children&.push(span) }
    @roots = @spans.reject { |span| by_id.key?(span.parent) }
  end

  # All of it has come, with functions of each service.
  def whole? = @roots.size == 1 && services(&:ours) == SERVICES.size

  # Services with exceptions.
  def raising = services { |span| span.raised.any? }

  def print
    root = @roots.first
    puts "", format("trace %s: %.1f ms, %d spans, %d of them functions that probescope saw (-)", @id, root.duration / 1e3, @spans.size,
                    @spans.count(&:ours)), "", "   from ms   takes ms"
    line(root, root.start, 0)
  end

  private

  def services(&block) = @spans.select(&block).map(&:service).uniq.size

  def read(span, processes)
    tags = tags(span["tags"])
    Span.new(span["spanID"], span["references"].first&.fetch("spanID"), processes.dig(span["processID"], "serviceName"),
             span["operationName"], place(tags), span["startTime"], span["duration"],
             tags.values_at("otel.scope.name", "otel.library.name").include?(OURS), raised(span["logs"]), [])
  end

  def tags(list) = list.to_h { |tag| tag.values_at("key", "value") }

  def place(tags) = tags.key?("code.file.path") ? "#{short(tags["code.file.path"])}:#{tags["code.line.number"]}" : nil

  def short(path) = path.split("/").last(2).join("/")

  def raised(logs)
    (logs || []).map { |log| tags(log["fields"]) }.filter_map do |fields|
      "#{fields["exception.type"]} at #{place(fields)}" if fields.key?("exception.type")
    end.tally
  end

  def line(span, from, depth)
    indent = "  " * depth
    puts format("%10.1f %10.1f  %s", (span.start - from) / 1e3, span.duration / 1e3,
                "#{indent}#{span.ours ? "- " : "#{span.service}: "}#{span.name}#{"  #{span.place}" if span.place}")
    span.raised.each { |what, times| puts "#{" " * 23}#{indent}    ! #{"#{times} x " if times > 1}#{what}" }
    span.children.sort_by(&:start).each { |child| line(child, from, depth + 1) }
  end
end

# Seconds until any trace with functions of both will do, and until there has to be one.
PATIENCE = 10
LIMIT = 90

# The newest ones.
def traces(url)
  response = Net::HTTP.get_response(URI("#{url}/api/traces?service=#{Trace::SERVICES.last}&limit=40&lookback=1h"))
  JSON.parse(response.body)["data"].map { |data| Trace.new(data) }.select(&:whole?)
end

def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

url = ARGV.fetch(0) { abort "usage: ruby trace_tree.rb http://127.0.0.1:16686" }
began = now
best = nil
until best && (best.raising == Trace::SERVICES.size || now - began > PATIENCE)
  abort "traces: no such trace within #{LIMIT} s" if now - began > LIMIT
  sleep 0.5
  best = [best, *traces(url)].compact.max_by(&:raising)
end
best.print
