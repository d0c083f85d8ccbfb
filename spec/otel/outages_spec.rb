# frozen_string_literal: true

require "spec_helper"
require "support/otlp_server"

# A backend fails in each way in which backends do, while a process continues.
RSpec.describe "probescope otel and a backend that fails", :bpf do
  # Makes DEPTH nested slow calls, again and again from USR1 to USR2, or COUNT times.
  app = <<~RUBY
    require "json"
    $stdout.sync = true
    Dir.chdir("/")
    eval(<<~WORK, TOPLEVEL_BINDING, #{File.join(Support::ROOT, "spec/otel/work.rb").inspect}, 1)
      def slow(left = 1) = left > 1 ? slow(left - 1) : sleep(0.0015)
    WORK
    DEPTH, COUNT = ARGV.values_at(0, 1).map(&:to_i)
    calls = 0
    running = nil
    trap("USR1") { running = true }
    trap("USR2") { running = false }
    puts "ready"
    sleep 0.01 while running.nil?
    while running && (COUNT.zero? || calls < COUNT)
      slow(DEPTH)
      calls += DEPTH
      sleep 0.0035
    end
    sleep 1.2 # until the last second's figures are out
    puts "calls \#{calls}"
    sleep 0.01 while true
  RUBY

  # The duration of a backend's failure in seconds. OUTAGE=30 gives a long run.
  outage = Float(ENV.fetch("OUTAGE", "3"))
  # Pauses between tries double, from 0.25 s on.
  most_tries = Math.log2(outage / 0.25).ceil + 2

  let(:server) { keep(Support::OtlpServer.new) }
  # Accepts metrics, while the other server fails for spans.
  let(:figures) { keep(Support::OtlpServer.new) }

  def bridge(process, env: {})
    flushes = process.info.header[:flushes]
    child = probescope_start("otel", "-p", process.pid, "--slow", "1ms", "--exceptions", "none", "--metrics",
                             env: {"OTEL_EXPORTER_OTLP_ENDPOINT" => server.endpoint, **env})
    child.await_line(/attached to/, stream: :err)
    process.await_on("function__slow1ms", "function__stats")
    # Metrics count from the first flush on.
    await("the first flush") { process.info.header[:flushes] > flushes }
    process.signal(:USR1)
    child
  end

  def figures_apart = {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT" => "#{figures.endpoint}/v1/metrics"}
  def report(bridge) = JSON.parse(bridge.err.lines.grep(/received/).last[/\{.*/], symbolize_names: true)
  def tries = server.headers.grep(%r{\APOST /v1/traces}).size

  # Returns {attributes => value} of a metric in the last export.
  def points(from, name)
    metric = from.metrics.reverse_each.find { |_, one| one.name == name } or return {}
    metric.last.sum.data_points.to_h do |point|
      [Support::OtlpServer.attributes(point.attributes), point.public_send(point.value)]
    end
  end

  # In the end the backend has what the process counts itself: spans and metrics.
  Support::OtlpServer.failures(retry_after: 3).each do |name, failure|
    rest = {full: "another one of its kind"} unless name.match?(/down|429/)
    it "loses nothing that fits into the queue when it #{name}", **rest.to_h do
      process = target(app, "1").ready
      bridge = bridge(process,
                      env: {"OTEL_EXPORTER_OTLP_TIMEOUT" => "1", "OTEL_METRIC_EXPORT_INTERVAL" => "1000"})
      await("spans") { server.spans.any? }
      server.behaviour = failure
      bridge.await_line(/traces: .*they wait/, stream: :err)
      before = tries
      sleep outage
      tried = tries - before
      expect(tried).to be <= most_tries
      server.behaviour = :take
      %w[traces metrics].each do |signal|
        bridge.await_line(/#{signal}: .*takes them again/, stream: :err, within: outage + 40)
      end
      process.signal(:USR2)
      calls = process.await_line(/^calls (\d+)$/)[1].to_i
      expect(bridge.stop(within: 60)).to be_success

      report = report(bridge)
      expect(report.dig(:traces, :dropped)).to eq({})
      expect(report.values_at(:waiting, :unsampled, :lost_events, :lost_by_the_kernel)).to eq([0] * 4)
      counted = points(server, "probescope.function.calls").values.sum
      expect([report[:received][:slow_calls], report.dig(:traces, :exported), server.span_ids.size, counted])
        .to eq([calls] * 4)
      warn "#{name} for #{outage.round} s: #{calls} calls, all exported, #{tried} tries" if ENV["OUTAGE"]
    end
  end

  # GIVEN more calls than the queue can hold, THEN the newest are sent after the failure, and the
  # others are counted.
  it "counts what finds no room" do
    server.behaviour = "503 Service Unavailable"
    process = target(app, "100", "20000").ready
    bridge = bridge(process, env: {**figures_apart, "OTEL_METRIC_EXPORT_INTERVAL" => "500"})
    calls = process.await_line(/^calls (\d+)$/, within: 60)[1].to_i
    lost = -> { points(figures, "probescope.bridge.lost").values.sum }
    received = lambda do
      points(figures, "probescope.bridge.received").sum do |of, number|
        of["probescope.event"] == "slow_calls" ? number : 0
      end
    end
    await("all of them in the queue", within: 60) do
      points(figures, "probescope.bridge.waiting").values == [0] && received.call + lost.call == calls
    end
    server.behaviour = :take
    bridge.await_line(/takes them again/, stream: :err, within: 60)
    # At its end the bridge sends for a limited time.
    await("the queue at the backend", within: 60) { server.span_ids.size >= 16_384 - 100 }
    expect(bridge.stop(within: 60)).to be_success

    report = report(bridge)
    traces = report[:traces]
    expect([calls, traces[:dropped].keys]).to eq([20_000, [:queue_full]])
    expect(traces[:exported] + traces[:dropped][:queue_full]).to eq(report[:received][:slow_calls])
    expect(traces[:exported]).to be_between(16_384 - 100, 16_384 + 512)
    expect(server.span_ids.size).to eq(traces[:exported])
  end

  # The bridge's own metrics arrive with the others, even if spans do not.
  {"refuses all of it" => "400 Bad Request", "hangs to the end" => :hang}.each do |name, behaviour|
    it "counts what it drops when it #{name}" do
      server.behaviour = behaviour
      bridge = bridge(target(app, "1").ready, env: figures_apart)
      await("a request") { server.times.any? }
      # A backend that hangs answers nothing until the example ends.
      expect(bridge.stop(within: 60)).to be_success

      report = report(bridge)
      traces = report[:traces]
      expect(traces[:dropped].keys).to eq([behaviour == :hang ? :shutdown : :"400"])
      expect(report[:received][:slow_calls])
        .to eq(traces[:exported] + traces[:dropped].values.sum + traces[:waiting] + report[:waiting])
      by_error = points(figures, "otel.sdk.exporter.span.exported").transform_keys do |attributes|
        attributes["error.type"]
      end
      expect(by_error).to eq(nil => 0, traces[:dropped].keys.first.to_s => traces[:dropped].values.first)
    end
  end
end
