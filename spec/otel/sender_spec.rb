# frozen_string_literal: true

require "spec_helper"
require "support/otlp_server"
require "probescope/otel/exporters"
require "probescope/otel/fair_queue"
require "probescope/otel/sender"
require "probescope/otel/transport"
require "opentelemetry-logs-sdk"

# Each item in a queue is exported, or dropped and counted with a reason, whatever the backend does.
RSpec.describe Probescope::Otel::Sender do
  server = -> { Support::OtlpServer.new }
  record = OpenTelemetry::SDK::Logs::LogRecordData
  fields = {timestamp: 1, observed_timestamp: 1, severity_number: 13, attributes: {},
            total_recorded_attributes: 0, trace_flags: OpenTelemetry::Trace::TraceFlags::DEFAULT,
            resource: OpenTelemetry::SDK::Resources::Resource.create({}),
            instrumentation_scope: OpenTelemetry::SDK::InstrumentationScope.new("spec", "0")}
  record = record.new(*record.members.map { |member| fields[member] })

  before { OpenTelemetry.logger = Logger.new(File::NULL) }

  # {behaviour => counts of what is dropped of 50, in batches of 10, and the messages}
  failures = {
    take: [{}, []],
    part: [{"rejected" => 5}, ["logs: the backend rejects some of them: too\told"]],
    "400 Bad Request": [{"400" => 50}, ["logs: the backend refuses them for good (400); they are dropped"]],
    "301 Moved\r\nLocation: /": [{"301" => 50},
                                 ["logs: the backend refuses them for good (301); they are dropped"]],
    "503 Service Unavailable": [{"shutdown" => 50},
                                ["logs: the backend does not take them (503); they wait"]],
    hang: [{"shutdown" => 50}, ["logs: the backend does not take them (Net::ReadTimeout); they wait"]],
    trickle: [{"shutdown" => 50}, ["logs: the backend does not take them (Net::ReadTimeout); they wait"]],
    garble: [{"shutdown" => 50}, ["logs: the backend does not take them (Net::HTTPBadResponse); they wait; " \
                                  "is that an endpoint of OTLP/HTTP (port 4318), not of gRPC (4317)?"]]
  }
  failures.each do |behaviour, (dropped, words)|
    it "counts the exported and the dropped log records when the backend answers #{behaviour.inspect}" do
      backend = keep(server.call)
      backend.behaviour = behaviour.match?(/\d/) ? behaviour.to_s : behaviour
      queue = Probescope::Otel::FairQueue.new(50)
      30.times { |i| [1, 2, 3, 1].each { |process| queue.push(process, [record]) if i < 20 || process == 1 } }
      expect([queue.size, queue.dropped]).to eq([50, 50])
      said = []
      exporter = Probescope::Otel::Exporters::Logs.new(endpoint: "#{backend.endpoint}/v1/logs",
                                                       transport: Probescope::Otel::Transport.new("logs", {}))
      sender = described_class.new("logs", queue, exporter,
                                   batch: 10, pause: 0.01, timeout: 1, say: ->(line) { said << line })
      sender.finish(1.5)
      expect(sender.dropped).to eq(dropped)
      expect(sender.exported + dropped.values.sum).to eq(50)
      expect(said).to eq(words)
    end
  end

  # Any user may listen at localhost:4318 while no Collector runs. The figures are in MiB.
  {endless: [true, "Net::ProtocolError"], endless_head: [true, "Net::ProtocolError"],
   bomb: [false, "400"]}.each do |behaviour, verdict|
    it "keeps only a bounded part of a response that is #{behaviour}" do
      backend = keep(server.call)
      backend.behaviour = behaviour
      script = <<~RUBY
        require "probescope/otel/exporters"
        require "probescope/otel/transport"
        require "opentelemetry-logs-sdk"
        OpenTelemetry.logger = Logger.new(File::NULL)
        def peak = File.read("/proc/self/status")[/VmHWM:\\s+(\\d+)/, 1].to_i / 1024
        record = OpenTelemetry::SDK::Logs::LogRecordData
        fields = {timestamp: 1, observed_timestamp: 1, severity_number: 13, attributes: {},
                  total_recorded_attributes: 0, trace_flags: OpenTelemetry::Trace::TraceFlags::DEFAULT,
                  resource: OpenTelemetry::SDK::Resources::Resource.create({}),
                  instrumentation_scope: OpenTelemetry::SDK::InstrumentationScope.new("spec", "0")}
        record = record.new(*record.members.map { |member| fields[member] })
        transport = Probescope::Otel::Transport.new("logs", {})
        exporter = Probescope::Otel::Exporters::Logs.new(endpoint: "#{backend.endpoint}/v1/logs",
                                                         transport: transport)
        before = peak
        taken = exporter.deliver([record], timeout: 5)
        p [taken, !exporter.again.nil?, exporter.reason, peak - before]
      RUBY
      child = keep(Support::Child.new(RbConfig.ruby, "-I#{Support::ROOT}/lib", "-e", script, env: ENV.to_h))
      child.wait
      taken, again, reason, grown = JSON.parse(child.out)
      expect([taken, again, reason]).to eq([false, *verdict]), child.to_s
      expect(grown).to be < 32
    end
  end

  it "limits a backend's Retry-After to five minutes" do
    far = (Time.now + 1_000_000).httpdate
    asked = ["7", "0", "99999999999999", far, (Time.now - 100).httpdate, "soon"]
    expect(asked.map { |text| Probescope::Otel::Exporters.seconds(text) }).to eq([7, 0, 300, 300, 0, 0])
  end

  it "keeps only the newest figures of each process" do
    queue = Probescope::Otel::FairQueue.new(Float::INFINITY, latest: true, weigh: :sum.to_proc)
    [[1, [3]], [2, [4]], [1, [5, 1]]].each { |process, bundle| queue.push(process, bundle) }
    expect([queue.size, queue.dropped, queue.reason]).to eq([10, 3, "superseded"])
    expect(queue.take(1, 0)).to eq([[4]])
    expect(queue.take(1, 0)).to eq([[5, 1]])
  end
end
