# frozen_string_literal: true

require "opentelemetry-sdk"
require "probescope/opentelemetry"

# The process that bench/spans.rb measures, in Ruby. It reads one command a line and answers with
# one line: "ns FIGURE" for a measurement, in ns of this thread's CPU, or "ok".
module Subject
  # Nested calls, all of them slow.
  NESTED = 100
  # Longer than the threshold of function__slow1ms.
  SLEEP = 0.0015
  BATCHES = 12

  module_function

  def nested(left) = left.zero? ? sleep(SLEEP) : nested(left - 1)

  # One slow call.
  def slow = least(5 * NESTED) { 5.times { nested(NESTED - 1) } }

  # One change of the current span: attach and detach.
  def change
    context = OpenTelemetry::Trace.context_with_span(OpenTelemetry::Trace.current_span)
    least(4000) { 2000.times { OpenTelemetry::Context.detach(OpenTelemetry::Context.attach(context)) } }
  end

  # One switch from one fiber to another.
  def switch
    fiber = Fiber.new { loop { Fiber.yield } }
    least(4000) { 2000.times { fiber.resume } }
  end

  # Returns the ns of one; the fastest quarter of the batches was below it.
  def least(count)
    Array.new(BATCHES) do
      began = cpu_ns
      yield
      (cpu_ns - began).fdiv(count)
    end.sort[BATCHES / 4]
  end

  def spin
    finish = cpu_ns + 20_000_000
    nil while cpu_ns < finish
  end

  def cpu_ns = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID, :nanosecond)

  def within_span(&block) = OpenTelemetry.tracer_provider.tracer("bench").in_span("request", &block)
end

$stdout.sync = true
ENV["OTEL_TRACES_EXPORTER"] = "none"
OpenTelemetry::SDK.configure
puts "ready"
while (command = $stdin.gets&.chomp)
  case command
  when "slow" then puts "ns #{Subject.slow}"
  when "slow in a span" then puts "ns #{Subject.within_span { Subject.slow }}"
  when "change" then puts "ns #{Subject.within_span { Subject.change }}"
  when "switch" then puts "ns #{Subject.within_span { Subject.switch }}"
  when "install" then puts Probescope::OpenTelemetry.install ? "ok" : "no"
  when "spin" then puts "ok #{Subject.spin}"
  end
end
