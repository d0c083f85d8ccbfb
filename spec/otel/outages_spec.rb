# frozen_string_literal: true

require "spec_helper"
require "support/otlp_server"

# A backend that fails in all the ways in which backends do, while a process goes on.
RSpec.describe "probescope otel and a backend that fails", :bpf do
  app = <<~RUBY
    require "json"
    $stdout.sync = true
    Dir.chdir("/")
    eval(<<~WORK, TOPLEVEL_BINDING, #{File.join(Support::ROOT, "spec/otel/work.rb").inspect}, 1)
      def slow = sleep(0.0015)
    WORK
    calls = 0
    running = true
    trap("USR1") { running = false }
    puts "ready"
    while running
      slow
      calls += 1
    end
    sleep 1.2
    puts "calls \#{calls}"
    sleep
  RUBY

  def report(bridge) = JSON.parse(bridge.err.lines.grep(/received/).last[/\{.*/], symbolize_names: true)

  failures = {
    "is down" => :stop.to_proc,
    "answers 503" => ->(server) { server.behaviour = "503 Service Unavailable" },
    "answers 429 with Retry-After" => ->(server) { server.behaviour = "429 Too Many Requests\r\nRetry-After: 3" },
    "resets connections" => ->(server) { server.behaviour = :reset },
    "hangs" => ->(server) { server.behaviour = :hang }
  }

  failures.each do |name, fail|
    it "loses nothing that finds room when it #{name}" do
      server = keep(Support::OtlpServer.new)
      process = target(app).ready
      bridge = probescope_start("otel", "-p", process.pid, "--slow", "1ms", "--exceptions", "none", "--endpoint", server.endpoint,
                                env: {"OTEL_EXPORTER_OTLP_TIMEOUT" => "1"})
      bridge.await_line(/attached to/, stream: :err)
      await("spans") { server.spans.any? }
      fail.call(server)
      bridge.await_line(/they wait/, stream: :err)
      requests = server.times.size
      sleep 3 # the outage
      name == "is down" ? server.start : server.behaviour = :take
      # It has tried again with pauses, and no more than that.
      expect(server.times.size - requests).to be <= 6
      bridge.await_line(/takes them again/, stream: :err, within: 40)
      process.signal(:USR1)
      process.await_line(/^calls \d+$/)
      expect(bridge.stop(within: 10)).to be_success

      report = report(bridge)
      expect(report.dig(:traces, :dropped)).to eq({})
      expect(report[:received][:slow_calls]).to eq(report.dig(:traces, :exported))
      expect(report.values_at(:waiting, :unsampled)).to eq([0, 0])
      expect(server.spans.map { |_, span| span.span_id }.uniq.size).to eq(report.dig(:traces, :exported))
      expect(report.values_at(:lost_events, :lost_by_the_kernel)).to eq([0, 0])
    end
  end

  # Figures of the bridge itself come to where others do, whatever becomes of spans.
  {"refuses all of it" => "400 Bad Request", "hangs to the end" => :hang}.each do |name, behaviour|
    it "counts what it drops when it #{name}" do
      server = keep(Support::OtlpServer.new)
      figures = keep(Support::OtlpServer.new)
      server.behaviour = behaviour
      process = target(app).ready
      bridge = probescope_start("otel", "-p", process.pid, "--slow", "1ms", "--exceptions", "none", "--metrics",
                                env: {"OTEL_EXPORTER_OTLP_ENDPOINT" => server.endpoint,
                                      "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT" => "#{figures.endpoint}/v1/metrics"})
      bridge.await_line(/attached to/, stream: :err)
      await("a request") { server.times.any? }
      began = monotonic
      expect(bridge.stop(within: 10)).to be_success
      expect(monotonic - began).to be < 6

      report = report(bridge)
      traces = report[:traces]
      expect(traces[:dropped].keys).to eq([behaviour == :hang ? :shutdown : :"400"])
      expect(report[:received][:slow_calls]).to eq(traces[:exported] + traces[:dropped].values.sum + traces[:waiting] + report[:waiting])
      points = figures.metrics.select { |_, metric| metric.name == "otel.sdk.exporter.span.exported" }.last.last.sum.data_points
      by_error = points.to_h { |point| [Support::OtlpServer.attributes(point.attributes)["error.type"], point.as_int] }
      expect(by_error).to eq(nil => 0, traces[:dropped].keys.first.to_s => traces[:dropped].values.first)
    end
  end
end
