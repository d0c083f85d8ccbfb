# frozen_string_literal: true

# A deep recursive parser with a costly habit: the story of 2007 again.
#
#   ruby examples/deepstack.rb            # spends its CPU on exceptions that nobody sees
#   ruby examples/deepstack.rb --fixed    # checks first
#
# A Source accepts an IO or a String. Its author wrote a short test for that:
#
#   @string = (str.string rescue str)
#
# For a String this raises a NoMethodError, whose backtrace the `rescue` discards at once. The
# parser recurses and makes a Source of each piece of text, so the deeper a document is, the more
# each backtrace costs. No log and no error page shows one. A tracer does:
#
#   probescope run -- ruby examples/deepstack.rb
#   sudo probescope exceptions -p PID
require "optparse"
require "stringio"

# Text to parse: an IO or a String.
class Source
  def initialize(str)
    @string = (str.string rescue str)
  end

  def words = @string.split
  def to_sym = @string.to_sym
  def to_s = @string
end

# The same without the exception.
class FixedSource < Source
  def initialize(str)
    @string = str.respond_to?(:string) ? str.string : str
  end
end

# "(a b (c))" -> [:a, :b, [:c]], a recursion for each list.
class Parser
  # Number of Sources made from a String. Without --fixed each raised an exception.
  attr_reader :strings

  def initialize(source_class)
    @source_class = source_class
    @strings = 0
  end

  def parse(io) = parse_list(@source_class.new(io).to_s, 1).first

  private

  # Reads from after a "(" to after its ")". Returns the list and that position.
  def parse_list(text, position)
    list = []
    loop do
      stop = text.index(/[()]/, position)
      list.concat(parse_words(text[position...stop]))
      return [list, stop + 1] if text[stop] == ")"

      inner, position = parse_list(text, stop + 1)
      list << inner
    end
  end

  def parse_words(text) = source(text).words.map { |word| source(word).to_sym }

  def source(string)
    @strings += 1
    @source_class.new(string)
  end
end

# "(w0 w1 w2 (w0 w1 w2 (...)))": a few words on every level, most of them at the bottom.
def document(depth)
  few, many = [3, 40].map { |count| Array.new(count) { |i| "w#{i}" }.join(" ") }
  "(#{few} " * depth + "(#{many})" + ")" * depth
end

# To capture a backtrace, the VM first calls the exception's `backtrace`. In every second turn this
# returns an empty one, and the turn saves the cost of backtraces: the truth for a tracer's figure.
# Turns are short, so that a slow machine, or a slow process, affects both kinds alike.
class Turns
  DOCUMENTS = 50

  # CPU seconds so far: of the turns with backtraces, and of those without.
  attr_reader :full, :empty

  def initialize
    @full = @empty = 0.0
    @with = true
    @started = cpu
  end

  # Ends a turn and begins one of the other kind. True after equal numbers of both.
  def change
    spent = cpu - @started
    @with ? @full += spent : @empty += spent
    @with = !@with
    @with ? NoMethodError.remove_method(:backtrace) : NoMethodError.class_eval { def backtrace = [] }
    @started = cpu
    @with
  end

  private

  def cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
end

options = { depth: 45, documents: Float::INFINITY }
OptionParser.new("usage: ruby examples/deepstack.rb [options]   " \
                 "(Ctrl-C stops it, kill -USR1 prints its counters)") do |parser|
  parser.on("--fixed", "ask respond_to? instead of rescuing")
  parser.on("--differential", "take turns: raise as always, and with an empty backtrace; " \
                              "count the CPU time of each")
  parser.on("--depth N", Integer, "nesting of the documents (#{options[:depth]})")
  parser.on("--documents N", Integer, "stop after N documents")
  parser.on("--seconds S", Float, "stop after S seconds")
end.parse!(into: options)

turns = Turns.new if options[:differential]
parser = Parser.new(options[:fixed] ? FixedSource : Source)
text, documents = document(options[:depth]), 0
clocks = [Process::CLOCK_PROCESS_CPUTIME_ID, Process::CLOCK_MONOTONIC]
started = clocks.map { |id| Process.clock_gettime(id) }
spent = -> { clocks.zip(started).map { |id, before| Process.clock_gettime(id) - before } }

report = lambda do
  figures = [documents, options[:fixed] ? 0 : parser.strings, *spent.call]
  each_kind = format(" full=%.3fs empty=%.3fs", turns.full, turns.empty) if turns
  $stdout.write(format("documents=%d raises=%d cpu=%.3fs wall=%.3fs%s\n", *figures, each_kind))
end

# A signal may come in the middle of a write, so the handler only sets a flag.
stopped = asked = false
%w[INT TERM].each { |signal| trap(signal) { stopped = true } }
trap("USR1") { asked = true }
Thread.new { sleep(options[:seconds]) && stopped = true } if options[:seconds]
$stdout.sync = true
puts "deepstack: pid #{Process.pid}, #{options[:depth]} levels deep", "ready"

until stopped || documents >= options[:documents]
  parser.parse(StringIO.new(text))
  documents += 1
  both_done = !turns || ((documents % Turns::DOCUMENTS).zero? && turns.change)
  next unless asked && both_done

  asked = false
  report.call
end
report.call
