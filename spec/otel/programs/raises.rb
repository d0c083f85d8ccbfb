# frozen_string_literal: true

# Raises inside spans on an order, each at its own time, and once very often. Prints what it
# did.
require "opentelemetry-sdk"
require "json"
ENV["OTEL_TRACES_EXPORTER"] = "none"
OpenTelemetry::SDK.configure
TRACER = OpenTelemetry.tracer_provider.tracer("raises")
class Costly < StandardError; end
class Often < StandardError; end
HOSTILE = "bad\e[31m\u202e\"'\n{}%s"
define_method(HOSTILE) { raise Costly, "secret" }

def within_span
  TRACER.in_span("request") do |span|
    send(HOSTILE)
  rescue Costly
    "#{span.context.hex_trace_id} #{span.context.hex_span_id}"
  end
end

def often
  raise Often, "secret"
rescue Often
  nil
end

$stdout.sync = true
go = false
trap("USR1") { go = true }
puts "ready"
sleep 0.01 until go
spans = Array.new(12) { sleep(0.12) && within_span }
200.times { often }
puts "did #{JSON.generate(spans)}"
loop { sleep 0.01 }
