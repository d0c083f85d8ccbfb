# frozen_string_literal: true

# Measures what `probescope otel` costs a traced application: a slow call, with the read of the
# application's current span; and a change of the current span while it is published for other tools
# (the thread-context record).
#
#   bundle exec ruby bench/spans.rb                                   # as root, a minute: this Ruby
#   PYTHON=/path/to/venv/bin/python bundle exec ruby bench/spans.rb   # and that Python, which can
#                                                                     # import opentelemetry.sdk
#
# Figures are ns of the thread's own CPU. Turns with and without bpftrace alternate in one process.
# "added" is the median of what a turn with bpftrace added to the turn before, with its standard
# error. It includes the time of the BPF program on the thread: the bridge's own program, and one
# that only counts.
%w[paths await elf info child python target bpf tracer].each do |name|
  require_relative "../spec/support/#{name}"
end
require_relative "../spec/ruby/support/opentelemetry"
require_relative "statistics"
$LOAD_PATH.unshift(File.join(Support::ROOT, "lib"))
require "probescope/otel/program"

class Spans
  include Support::Await
  include Statistics

  TURNS = 10
  PROBE = "function__slow1ms"
  BRIDGE = Probescope::Otel::Program.new(slow: 1_000_000, exceptions: false, metrics: false, messages: false)
  PROGRAMS = {"the bridge's program" => BRIDGE.text,
              "a program that only counts" => "usdt:*:probescope:#{PROBE} { @calls = count(); }"}.freeze
  # The arguments with which `probescope otel` starts bpftrace.
  TRACER = {args: ["*"], options: ["-f", "json"],
            env: {"BPFTRACE_STRLEN" => "200", "BPFTRACE_PERF_RB_PAGES" => "256"}}.freeze
  KINDS = ["slow", "slow in a span"].freeze
  CHANGES = %w[change switch].freeze

  def initialize(label, source, **options)
    @label = label
    @source = File.join(__dir__, "spans", source)
    @options = options
  end

  def slow_rows
    with_subject do |subject|
      turns = Array.new(TURNS) { PROGRAMS.each_value.map { |program| turn(subject, program) } }
      PROGRAMS.keys.zip(turns.transpose).map do |name, of_one|
        alone, without, within = of_one.transpose
        span = within.zip(without).map { |one, other| one - other }
        "| #{@label}, #{name} | #{ns(alone)} | #{added(without)} | #{added(within)} | #{added(span)} |"
      end
    end
  end

  def change_row
    with_subject do |subject|
      before = figures(subject)
      ask(subject, "install", /^ok/)
      after = figures(subject)
      cells = CHANGES.flat_map do |kind|
        [ns(before[kind]), "#{signed(median(after[kind]) - median(before[kind]))} ns"]
      end
      "| #{@label} | #{cells.join(" | ")} |"
    end
  end

  private

  def with_subject
    subject = Support::Target.new(@source, stdin: true, **@options).ready
    yield subject
  ensure
    subject&.kill_all
  end

  # Returns [ns of a slow call alone, ns added without a span of the application, ns added within a
  # span].
  def turn(subject, program)
    before = KINDS.map { |kind| measure(subject, kind) }
    during = listened(subject, program) { KINDS.map { |kind| measure(subject, kind) } }
    [before.first, *during.zip(before).map { |on, off| on - off }]
  end

  def listened(subject, program)
    tracer = Support::Tracer.new(program, pid: subject.pid, **TRACER)
    await_state(subject, :on)
    yield
  ensure
    tracer&.stop(:INT)
    await_state(subject, :off)
  end

  # Hooks are switched only in a running Ruby.
  def await_state(subject, state)
    await("#{PROBE} #{state}", within: 60) do
      ask(subject, "spin", /^ok/) && subject.info.state(PROBE) == state
    end
  end

  def figures(subject)
    CHANGES.to_h { |kind| [kind, Array.new(TURNS) { measure(subject, kind) }] }
  end

  def measure(subject, what) = ask(subject, what, /^ns (\S+)/)[1].to_f

  # Sends one command and waits for its answer.
  def ask(subject, command, pattern)
    answered = subject.out.lines.size
    subject.puts(command)
    await("an answer to #{command}", within: 60) do
      subject.out.lines[answered]&.then { |line| line.end_with?("\n") && line.match(pattern) }
    end
  end

  def ns(values) = "#{median(values).round} ns"
  def signed(value) = format("%+d", value.round)

  # The median and its standard error, which a few disturbed turns do not change.
  def added(values)
    spread = 1.4826 * median(values.map { |value| (value - median(values)).abs })
    "#{signed(median(values))} ± #{(1.2533 * spread / Math.sqrt(values.size)).round} ns"
  end
end

subjects = [Spans.new("Ruby #{RUBY_VERSION}", "subject.rb",
                      options: ["-I#{File.join(Support::ROOT, "lib")}", *OpenTelemetryGems.options])]
subjects << Spans.new("CPython #{Support::Python.full_version}", "subject.py") if ENV["PYTHON"]
load = File.read("/proc/loadavg").split.first
puts <<~TABLE
  Measured by `bench/spans.rb` on #{`uname -srm`.strip},
  bpftrace #{`bpftrace --version`[/[\d.]+/]}, load #{load}.

  | a slow call under | without a tracer | added | added within a span | read of the span |
  |---|---|---|---|---|
TABLE
subjects.each { |subject| puts subject.slow_rows }
puts "", "| | a change of the current span | published | a switch of fibers or tasks | published |",
     "|---|---|---|---|---|"
subjects.each { |subject| puts subject.change_row }
