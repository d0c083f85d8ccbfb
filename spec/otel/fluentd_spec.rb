# frozen_string_literal: true

require "spec_helper"
require "support/fluentd"
require "ruby/support/opentelemetry"

# Compares log records in a real fluentd with what the process did.
RSpec.describe "probescope otel and fluentd", :bpf do
  before(:context) { Support::Fluentd.require! { |reason| skip reason } }

  program = File.join(Support::ROOT, "spec/otel/programs/raises.rb")

  # GIVEN an exception in each of some spans, and more exceptions at one place than the limit in a
  # second, THEN each of the former has a record with its span's ids, and the bridge counts the
  # latter that have no record.
  it "receives each exception with its place, its span and its process, without its message" do
    fluentd = keep(Support::Fluentd.new)
    process = target(program, options: OpenTelemetryGems.options, env: {"OTEL_SERVICE_NAME" => "shop"}).ready
    bridge = probescope_start("otel", "-p", process.pid, "--exceptions", "all",
                              env: {"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT" => fluentd.endpoint})
    bridge.await_line(/attached to/, stream: :err)
    process.await_on("exception__detail", "exception__stats")
    process.signal(:USR1)
    spans = JSON.parse(process.await_line(/^did (.*)$/)[1])
    flushes = process.info.header[:flushes]
    await("two flushes") { process.info.header[:flushes] > flushes + 1 }
    expect(bridge.stop(within: 60)).to be_success
    report = JSON.parse(bridge.err.lines.grep(/received/).last[/\{.*/], symbolize_names: true)
    await("all records") { fluentd.records.size >= report.dig(:logs, :exported) }

    costly, often = fluentd.records.partition do |record|
      record.dig("attributes", "exception.type") == "Costly"
    end
    expect(costly.map { |record| record.values_at("traceId", "spanId").join(" ") }).to match_array(spans)
    expect(often.size + report[:details_suppressed]).to eq(200)
    expect(report.dig(:logs, :exported)).to eq(costly.size + often.size)
    expect(costly.map { |record| record["eventName"] || record.dig("attributes", "event.name") }.uniq)
      .to eq(["exception"])
    place = {"code.function.name" => %q(Object#bad\e[31m\u202e"'\n{}%s), "code.file.path" => program,
             "code.line.number" => "12"}
    costly.each do |record|
      expect(record["attributes"]).to include(place)
      expect(record["resource"]).to include("service.name" => "shop", "process.pid" => process.pid.to_s,
                                            "process.runtime.name" => "ruby")
      expect(Time.now.to_f - (record["timeUnixNano"].to_i / 1e9)).to be_between(0, 60)
    end
    expect(fluentd.text).not_to include("secret")
  end
end
