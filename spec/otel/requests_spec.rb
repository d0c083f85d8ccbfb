# frozen_string_literal: true

require "spec_helper"
require "ruby/support/opentelemetry"
require "support/otlp_server"

# Requests that no other tool sends: spec/otel/programs/web.rb.
RSpec.describe "probescope otel and requests", :bpf do
  trace_id = "0af7651916cd43dd8448eb211c80319c"
  came_from = "b7ad6b7169203331"

  let(:server) { keep(Support::OtlpServer.new) }

  def hex(bytes) = bytes.unpack1("H*")
  def attributes(span) = Support::OtlpServer.attributes(span.attributes)

  # Returns the spans of the program after it has made each request.
  def spans_of(*arguments, count:, **options)
    process = target(File.join(Support::ROOT, "spec/otel/programs/web.rb"), *arguments,
                     stdin: true, **options, env: {"PROBESCOPE_FUNCTIONS" => "Desk#work"}).ready
    bridge = probescope_start("otel", "-p", process.pid, "--slow", "1ms", "--exceptions", "all",
                              "--endpoint", server.endpoint)
    bridge.await_line(/attached to/, stream: :err)
    process.await_on("function__slow1ms", "request__done", "exception__detail")
    process.puts("go")
    process.await_line(/^done$/)
    await("its spans", every: 0.2) { server.spans.size >= count }
    expect(bridge.stop(within: 60)).to be_success
    @report = JSON.parse(bridge.err.lines.grep(/received/).last[/\{.*/])
    expect(@report).to include("lost_by_the_kernel" => 0, "waiting" => 0)
    server.spans.map(&:last)
  end

  it "sends requests of an application without OpenTelemetry's SDK, with their slow calls and " \
     "inline jobs as children" do
    found = spans_of("api", count: 11, options: OpenTelemetryGems.options)
    spans = found.to_h { |span| [span.name, span] }
    expect(spans.transform_values { |span| span.kind.to_s.delete_prefix("SPAN_KIND_").downcase }).to eq(
      "GET /orders/:id" => "server", "POST" => "server", "HTTP" => "server", "process Mail" => "consumer",
      "process Fails" => "consumer",
      "process Receipt" => "consumer", "Desk#work" => "internal"
    )
    order = spans["GET /orders/:id"]
    expect([hex(order.trace_id), hex(order.parent_span_id)]).to eq([trace_id, came_from])
    expect(attributes(order)).to include("http.request.method" => "GET", "http.route" => "/orders/:id",
                                         "url.path" => "/orders/7", "http.response.status_code" => 200,
                                         "url.scheme" => "https")
    failed = spans["POST"]
    expect(attributes(failed)).to include("http.request.method" => "POST", "url.path" => "/fails",
                                          "error.type" => "500", "http.response.status_code" => 500)
    expect([failed.parent_span_id, failed.status.code]).to eq(["", :STATUS_CODE_ERROR])
    odd = found.select { |span| span.name == "HTTP" }.to_h do |span|
      attributes(span).values_at("http.request.method_original", "url.path")
    end
    expect(odd).to eq("BREW" => "/odd?[31m", "JOB?" => "/work")
    expect(attributes(spans["HTTP"])).to include("http.request.method" => "_OTHER")
    expect(attributes(spans["process Mail"])).to include(
      "messaging.system" => "sidekiq", "messaging.destination.name" => "mails",
      "messaging.operation.type" => "process",
      "messaging.operation.name" => "process", "probescope.job.name" => "Mail"
    )
    expect(spans["process Fails"].status.code).to eq(:STATUS_CODE_ERROR)
    expect(attributes(spans["process Fails"])).to include("error.type" => "_OTHER")

    # Four requests have a slow call, each its own.
    calls = found.select { |span| span.name == "Desk#work" }
    parents = calls.map do |call|
      found.find { |span| span.span_id == call.parent_span_id && span.trace_id == call.trace_id }
    end
    expect(parents.map(&:name))
      .to contain_exactly("GET /orders/:id", "POST", "process Mail", "process Receipt")
    expect([spans["process Receipt"].trace_id, spans["process Receipt"].parent_span_id])
      .to eq([order.trace_id, order.span_id])
    calls.zip(parents) do |call, around|
      expect(call.start_time_unix_nano).to be >= around.start_time_unix_nano - 1_000_000
      expect(call.end_time_unix_nano).to be <= around.end_time_unix_nano + 1_000_000
    end
    # An exception is in the innermost span around it.
    raised = found.to_h do |span|
      [span.name, span.events.map { |event| attributes(event)["exception.type"] }]
    end
    expect(raised.reject { |_, types| types.empty? }).to eq("Desk#work" => %w[ArgumentError],
                                                            "POST" => %w[RuntimeError],
                                                            "process Fails" => %w[RuntimeError])
    length = order.end_time_unix_nano - order.start_time_unix_nano
    expect(length)
      .to be_between(calls.first.end_time_unix_nano - calls.first.start_time_unix_nano, 60_000_000_000)
    # One request came in a trace that is not sampled.
    expect(@report).to include("unsampled" => be >= 1, "received" => include("requests" => 9))
  end

  it "sends no request of an application with OpenTelemetry, which sends them itself" do
    spans = spans_of("otel", count: 6, options: OpenTelemetryGems.options)
    expect(spans.map(&:name).uniq).to eq(%w[Desk#work])
    expect(@report["received"]).not_to include("requests")
  end
end
