# frozen_string_literal: true

require "spec_helper"
require "support/jaeger"
require "ruby/support/opentelemetry"

# Applications send their own spans to Jaeger, and a bridge traces them at the same time.
RSpec.describe "probescope otel", :bpf, :jaeger do
  before(:context) { Support::Jaeger.require! { |reason| skip reason } }

  # Each thread makes its own requests: a span of the application, and calls in it whose names have
  # the span's number.
  app = <<~RUBY
    require "opentelemetry-sdk"
    require "opentelemetry/exporter/otlp"
    ENV["OTEL_TRACES_EXPORTER"] = "none"
    OpenTelemetry::SDK.configure do |c|
      c.service_name = "shop"
      exporter = OpenTelemetry::Exporter::OTLP::Exporter.new
      c.add_span_processor(OpenTelemetry::SDK::Trace::Export::BatchSpanProcessor.new(
        exporter, max_queue_size: 100_000, schedule_delay: 200))
    end
    TRACER = OpenTelemetry.tracer_provider.tracer("shop")
    THREADS, REQUESTS = Integer(ARGV[0]), Integer(ARGV[1])
    module Work
      THREADS.times do |i|
        class_eval(<<~METHODS, #{File.join(Support::ROOT, "spec/otel/work.rb").inspect}, 1)
          def self.outer\#{i} = (inner\#{i}; TRACER.in_span("query \#{i}") { query\#{i} })
          def self.inner\#{i} = sleep(0.002)
          def self.query\#{i} = (sleep(0.002); (Integer("x") rescue 0))
        METHODS
      end
    end
    $stdout.sync = true
    puts "ready"
    $stdin.gets
    THREADS.times.map do |i|
      Thread.new { REQUESTS.times { TRACER.in_span("request \#{i}") { Work.public_send("outer\#{i}") } } }
    end.each(&:join)
    OpenTelemetry.tracer_provider.force_flush
    puts "done"
    $stdin.gets
  RUBY

  def bridge(jaeger, *arguments)
    child = probescope_start("otel", *arguments, "--endpoint", jaeger.endpoint)
    child.await_line(/attached to/, stream: :err)
    child
  end

  # GIVEN 8 threads with their own requests, WHEN the bridge is attached, THEN each slow call is a
  # child of its caller or of the enclosing span, and never of another request's.
  it "puts each slow call of 8 threads below its own request" do
    jaeger = keep(Support::Jaeger.new)
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT" => jaeger.endpoint, "OTEL_SERVICE_NAME" => "shop"}
    process = target(app, "8", "150", options: OpenTelemetryGems.options("opentelemetry-exporter-otlp"),
                                      stdin: true, env: env).ready
    bridge = bridge(jaeger, "-p", process.pid, "--slow", "1ms")
    process.await_on("function__slow1ms")
    process.puts("go")
    process.await_line(/^done$/, within: 60)
    await("all spans in Jaeger", within: 60, every: 0.5) { jaeger.traces("shop").sum(&:size) >= 8 * 150 * 5 }
    expect(bridge.stop(within: 60)).to be_success
    process.puts("end")

    traces = jaeger.traces("shop")
    expect(traces.size).to eq(8 * 150)
    traces.each do |spans|
      shape = spans.values.to_h { |span| [span.name, spans[span.parent]&.name] }
      number = shape.key(nil)[/\d+/]
      expect(shape).to eq("request #{number}" => nil, "Work.outer#{number}" => "request #{number}",
                          "query #{number}" => "request #{number}",
                          "Work.inner#{number}" => "Work.outer#{number}",
                          "Work.query#{number}" => "query #{number}")
      spans.each_value do |span|
        around = spans[span.parent] or next
        expect(span.began).to be >= around.began - 1000
        expect(span.ended).to be <= around.ended + 1000
      end
    end
  end
end
