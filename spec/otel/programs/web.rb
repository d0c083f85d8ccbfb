# frozen_string_literal: true

# Requests and jobs, some with a call of 5 ms, one in a trace that is not sampled. With the argument `otel` it has
# OpenTelemetry.
require "io/wait"

if ARGV.first == "otel"
  require "opentelemetry-sdk"
  ENV["OTEL_TRACES_EXPORTER"] = "none"
  OpenTelemetry::SDK.configure
  OTEL = OpenTelemetry.tracer_provider.tracer("web")
else
  OTEL = nil
end

class Desk
  def call(env)
    OTEL ? OTEL.in_span(env["PATH_INFO"]) { answer(env) } : answer(env)
  end

  def answer(env)
    case env["PATH_INFO"]
    when "/orders/7"
      work
      env["probescope.route"] = "/orders/:id"
      [200, {}, ["ok"]]
    when "/fails" then work && raise("on purpose")
    else [200, {}, []]
    end
  end

  def work = sleep(0.005)
end

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"
DESK = Desk.new
APP = Probescope::Rack.new(DESK)

def ask(method, path, **env)
  APP.call("REQUEST_METHOD" => method, "PATH_INFO" => path, **env)
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
nil until $stdin.wait_readable(0.01) # hooks come in when something runs
$stdin.gets
ask("GET", "/orders/7", "HTTP_TRACEPARENT" => "#{TRACE}01")
ask("GET", "/orders/7", "HTTP_TRACEPARENT" => "#{TRACE}00")
ask("POST", "/fails")
ask("BREW", "/odd\e[31m")
job("Mail") { OTEL ? OTEL.in_span("mail") { DESK.work } : DESK.work }
job("Fails") { raise "on purpose" }
puts "done"
$stdin.gets
