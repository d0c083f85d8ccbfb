# frozen_string_literal: true

require "spec_helper"
require "support/host_helpers"
require "support/otlp_server"

# A process with PROBESCOPE_MAX_OVERHEAD takes hooks out during a bridge's trace. The bridge reports
# it in what it sends.
RSpec.describe "probescope otel and PROBESCOPE_MAX_OVERHEAD", :bpf do
  include Support::HostTarget

  def attributes(list) = Support::OtlpServer.attributes(list)
  def points(metric) = metric.public_send(metric.data).data_points

  # Returns {attribute of a gauge's point => its value}.
  def gauge(name, key)
    metrics = server.metrics.select { |_, metric| metric.name == name }
    metrics.flat_map { |_, metric| points(metric) }
           .to_h { |point| [attributes(point.attributes)[key], point.as_double] }
  end

  def start(code)
    path = File.join(@folder, "hot.rb")
    File.write(path, code)
    target(path, env: {"PROBESCOPE_FUNCTIONS" => "#{@folder}/**", "PROBESCOPE_MAX_OVERHEAD" => "5%"}).ready
  end

  def bridge(program, *arguments)
    child = probescope_start("otel", "-p", program.pid, "--exceptions", "none", "--endpoint", server.endpoint,
                             *arguments, env: {"OTEL_METRIC_EXPORT_INTERVAL" => "500"})
    child.await_line(/attached to/, stream: :err, within: 60)
    child
  end

  around { |example| Dir.mktmpdir { |folder| (@folder = folder) && example.run } }

  let(:server) { keep(Support::OtlpServer.new) }

  it "reports the end of a function's counting in metrics, in spans and in its log" do
    began = Time.now.to_f
    program = start(<<~CODE)
      $stdout.sync = true
      def trifle; end
      def slow = sleep(0.02)
      puts "ready"
      loop do
        20_000.times { trifle }
        slow
      end
    CODE
    bridge = bridge(program, "--slow", "10ms", "--metrics")
    bridge.await_line(
      /process #{program.pid}: 1 function is not counted any more: PROBESCOPE_MAX_OVERHEAD=5%/, stream: :err
    )
    counted_until = await("a gauge") do
      gauge("probescope.function.counted_until", "code.function.name").first
    end
    expect(counted_until).to match(["Object#trifle", be_between(began, Time.now.to_f)])
    spans = -> { server.spans.map { |_, span| attributes(span.attributes)["probescope.incomplete"] } }
    await("a span after that") { spans.call.last }
    expect(spans.call.last).to match(/\A1 function is not counted any more: PROBESCOPE_MAX_OVERHEAD=5%/)
    expect(bridge.stop(within: 60)).to be_success
  end

  it "reports the end of the counting of a probe that was taken out" do
    program = start(<<~CODE)
      $stdout.sync = true
      class Thing; end
      puts "ready"
      loop { Thing.new }
    CODE
    bridge = bridge(program, "--metrics")
    bridge.await_line(
      /process #{program.pid}: object__stats counts until \S+Z alone: taken out for taking too much CPU time/,
      stream: :err
    )
    await("a gauge") { gauge("probescope.probe.counted_until", "probescope.probe").key?("object__stats") }
    expect(bridge.stop(within: 60)).to be_success
  end
end
