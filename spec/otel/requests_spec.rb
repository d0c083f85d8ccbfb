# frozen_string_literal: true

require "spec_helper"
require "ruby/support/opentelemetry"
require "support/otlp_server"

# Requests that nobody else sends: spec/otel/programs/web.rb.
RSpec.describe "probescope otel and requests", :bpf do
  trace_id = "0af7651916cd43dd8448eb211c80319c"
  came_from = "b7ad6b7169203331"

  let(:server) { keep(Support::OtlpServer.new) }

  def hex(bytes) = bytes.unpack1("H*")
  def attributes(span) = Support::OtlpServer.attributes(span.attributes)

  # What is sent of the program, once it has made each request.
  def spans_of(*arguments, count:, **options)
    process = target(File.join(Support::ROOT, "spec/otel/programs/web.rb"), *arguments, stdin: true, **options,
                                                                                        env: {"PROBESCOPE_FUNCTIONS" => "Desk#work"}).ready
    bridge = probescope_start("otel", "-p", process.pid, "--slow", "1ms", "--exceptions", "none", "--endpoint", server.endpoint)
    bridge.await_line(/attached to/, stream: :err)
    process.await_on("function__slow1ms", "request__done")
    process.puts("go")
    process.await_line(/^done$/)
    await("its spans", every: 0.2) { server.spans.size >= count }
    expect(bridge.stop(within: 10)).to be_success
    @report = JSON.parse(bridge.err.lines.grep(/received/).last[/\{.*/])
    expect(@report).to include("lost_by_the_kernel" => 0, "waiting" => 0)
    server.spans.map(&:last)
  end

  it "sends those of an application without OpenTelemetry, with their slow calls as children" do
    found = spans_of(count: 8)
    spans = found.to_h { |span| [span.name, span] }
    expect(spans.transform_values { |span| span.kind.to_s.delete_prefix("SPAN_KIND_").downcase }).to eq(
      "GET /orders/:id" => "server", "POST" => "server", "HTTP" => "server", "process Mail" => "consumer", "process Fails" => "consumer",
      "Desk#work" => "internal"
    )
    order = spans["GET /orders/:id"]
    expect([hex(order.trace_id), hex(order.parent_span_id)]).to eq([trace_id, came_from])
    expect(attributes(order)).to include("http.request.method" => "GET", "http.route" => "/orders/:id", "url.path" => "/orders/7",
                                         "http.response.status_code" => 200)
    failed = spans["POST"]
    expect(attributes(failed)).to include("http.request.method" => "POST", "url.path" => "/fails", "error.type" => "500",
                                          "http.response.status_code" => 500)
    expect([failed.parent_span_id, failed.status.code]).to eq(["", :STATUS_CODE_ERROR])
    expect(attributes(spans["HTTP"])).to include("http.request.method" => "_OTHER", "http.request.method_original" => "BREW",
                                                 "url.path" => "/odd?[31m")
    expect(attributes(spans["process Mail"])).to include(
      "messaging.system" => "sidekiq", "messaging.destination.name" => "mails", "messaging.operation.type" => "process",
      "messaging.operation.name" => "process", "probescope.job.name" => "Mail"
    )
    expect(spans["process Fails"].status.code).to eq(:STATUS_CODE_ERROR)
    expect(attributes(spans["process Fails"])).to include("error.type" => "_OTHER")

    # The slow call of three of them, each within its own.
    calls = found.select { |span| span.name == "Desk#work" }
    parents = calls.map { |call| found.find { |span| span.span_id == call.parent_span_id && span.trace_id == call.trace_id } }
    expect(parents.map(&:name)).to contain_exactly("GET /orders/:id", "POST", "process Mail")
    calls.zip(parents) do |call, around|
      expect(call.start_time_unix_nano).to be >= around.start_time_unix_nano - 1_000_000
      expect(call.end_time_unix_nano).to be <= around.end_time_unix_nano + 1_000_000
    end
    length = order.end_time_unix_nano - order.start_time_unix_nano
    expect(length).to be_between(calls.first.end_time_unix_nano - calls.first.start_time_unix_nano, 60_000_000_000)
    # One came in a trace that is not sampled.
    expect(@report).to include("unsampled" => be >= 1, "received" => include("requests" => 6))
  end

  it "sends none of an application with OpenTelemetry, whose own they are" do
    spans = spans_of("otel", count: 4, options: OpenTelemetryGems.options)
    expect(spans.map(&:name).uniq).to eq(%w[Desk#work])
    expect(@report["received"]).not_to include("requests")
  end
end
