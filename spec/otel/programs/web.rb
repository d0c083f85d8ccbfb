# frozen_string_literal: true

# Requests and jobs, some with a call of 5 ms, one in a trace that is not sampled. The
# argument `otel` loads OpenTelemetry. `api` loads it without an SDK, so the current span is
# never sent.
require "io/wait"

if ARGV.first == "otel"
  require "opentelemetry-sdk"
  ENV["OTEL_TRACES_EXPORTER"] = "none"
  OpenTelemetry::SDK.configure
  OTEL = OpenTelemetry.tracer_provider.tracer("web")
else
  OTEL = nil
end
require "opentelemetry" if ARGV.first == "api"

class Desk
  def call(env)
    return OTEL.in_span(env["PATH_INFO"]) { answer(env) } if OTEL

    OpenTelemetry::Trace.with_span(came(env["HTTP_TRACEPARENT"])) { answer(env) }
  end

  # Reads the header as the instrumentation of a server does.
  def came(header)
    _, trace, span = header.to_s.split("-").map { |hex| [hex].pack("H*") }
    context = OpenTelemetry::Trace::SpanContext.new(trace_id: trace, span_id: span, remote: true) if span
    OpenTelemetry::Trace.non_recording_span(context || OpenTelemetry::Trace::SpanContext::INVALID)
  end

  def answer(env)
    case env["PATH_INFO"]
    when "/orders/7"
      work
      env["probescope.route"] = "/orders/:id"
      Probescope::Job.run("Receipt", system: "inline") { work }
      [200, {}, ["ok"]]
    when "/fails" then work && raise("on purpose")
    else [200, {}, []]
    end
  end

  def work
    sleep(0.005)
    Integer("five")
  rescue ArgumentError
    true
  end
end

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"
DESK = Desk.new
APP = Probescope::Rack.new(DESK)

def ask(method, path, **env)
  APP.call("REQUEST_METHOD" => method, "PATH_INFO" => path, "rack.url_scheme" => "https", **env)
rescue RuntimeError
  nil
end

def job(name, &block)
  Probescope::Sidekiq.new.call(nil, {"class" => name}, "mails", &block)
rescue RuntimeError
  nil
end

$stdout.sync = true
puts "ready"
nil until $stdin.wait_readable(0.01) # hooks come in while Ruby runs
$stdin.gets
ask("GET", "/orders/7", "HTTP_TRACEPARENT" => "#{TRACE}01")
ask("GET", "/orders/7", "HTTP_TRACEPARENT" => "#{TRACE}00")
ask("POST", "/fails")
ask("BREW", "/odd\e[31m")
ask("JOB", "/work")
job("Mail") { OTEL ? OTEL.in_span("mail") { DESK.work } : DESK.work }
job("Fails") { raise "on purpose" }
puts "done"
$stdin.gets
