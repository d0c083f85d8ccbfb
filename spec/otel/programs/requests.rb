# frozen_string_literal: true

# Concurrent requests, each in its own trace. Each makes slow calls, and a call's name has the
# number of its request's worker.
#
#   ruby requests.rb threads|fibers COUNT REQUESTS FILE
#
# COUNT workers make REQUESTS requests each. FILE gets the program's own record of the calls of each
# request: support/parents.rb. Every tenth request is not sampled.
require "io/wait"
require "json"
require "opentelemetry-sdk"

MODE, count, requests, FILE = ARGV
COUNT = count.to_i
REQUESTS = requests.to_i
ENV["OTEL_TRACES_EXPORTER"] = "none"
OpenTelemetry::SDK.configure { |c| c.logger = Logger.new(File::NULL) }
off = OpenTelemetry::SDK::Trace::Samplers::ALWAYS_OFF
never = OpenTelemetry::SDK::Trace::TracerProvider.new(sampler: off)
TRACERS = [OpenTelemetry.tracer_provider, never].map { |provider| provider.tracer("requests") }
KNOWN = [] # rubocop:disable Style/MutableConstant
# Lets the other workers run.
PAUSE = MODE == "fibers" ? -> { Fiber.yield } : -> { Thread.pass }
# Parent of each child: a call, or a span of the application.
SHAPE = {"outer" => "request", "inner" => "outer", "lookup" => "query", "row" => "lookup",
         "again" => "outer"}.freeze

module Work
  COUNT.times do |i|
    class_eval(<<~METHODS, __FILE__, __LINE__ + 1)
      def self.worker#{i}
        REQUESTS.times { |n| request#{i}(n % 10 != 9) }
      end

      def self.request#{i}(sampled)
        known = {number: #{i}, sampled: sampled}
        tracer = TRACERS[sampled ? 0 : 1]
        tracer.in_span("request") do |span|
          known.update(trace: span.context.hex_trace_id, spans: {"request" => span.context.hex_span_id})
          outer#{i}(tracer, known)
        end
        KNOWN << known
      end

      def self.outer#{i}(tracer, known)
        inner#{i}
        PAUSE.call
        tracer.in_span("query") do |span|
          known[:spans]["query"] = span.context.hex_span_id
          lookup#{i}
        end
        again#{i}
      end

      def self.lookup#{i}
        PAUSE.call
        row#{i}
      end

      def self.inner#{i} = sleep(0.0011)
      def self.row#{i} = sleep(0.0011)
      def self.again#{i} = sleep(0.0011)
    METHODS
  end

  def self.run
    return COUNT.times.map { |i| Thread.new { public_send("worker#{i}") } }.each(&:join) if MODE == "threads"

    fibers = Array.new(COUNT) { |i| Fiber.new { public_send("worker#{i}") } }
    fibers = fibers.each(&:resume).select(&:alive?) while fibers.any?
  end
end

$stdout.sync = true
puts "ready"
# Hooks come in while Ruby runs.
nil until $stdin.wait_readable(0.05)
Work.run
File.write(FILE, JSON.generate(shape: SHAPE, requests: KNOWN))
puts "done"
$stdin.gets
