# frozen_string_literal: true

# For bench/requests.rb: prints the ns of a call of a Rack application, bare and within
# Probescope::Rack, idle and then attached.
require "probescope"

$stdout.sync = true
COUNT = 200
BODY = ["ok"].freeze
BARE = ->(_env) { [200, {}, BODY] }
WITHIN = Probescope::Rack.new(BARE)

def turn(app)
  env = {"REQUEST_METHOD" => "GET", "SCRIPT_NAME" => "", "PATH_INFO" => "/labels/7"}
  start = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
  i = 0
  while i < COUNT
    app.call(env)
    env.delete(Probescope::Rack::KEY)
    i += 1
  end
  (Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - start) / COUNT.to_f
end

def medians
  turns = Array.new(501) { [turn(BARE), turn(WITHIN)] }
  turns.transpose.map { |way| way.sort[250].round(1) }.join(" ")
end

puts "idle #{medians}"
sleep 0.01 until Probescope.status[:probes][:request__done].first == :on
puts "attached #{medians}"
sleep
