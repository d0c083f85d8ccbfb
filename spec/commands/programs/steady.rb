# frozen_string_literal: true

# Calls a method some 400 times a second. On SIGTERM it writes the time of each call, as [ns of the
# time of day, calls so far].
class Steady
  def work = nil
end

steady = Steady.new
notes = []
trap(:TERM) do
  puts JSON.generate(notes)
  exit
end
require "json"
puts "ready"
$stdout.flush
loop do
  steady.work
  notes << [Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond), notes.size + 1]
  sleep 0.002
end
