# frozen_string_literal: true

# Calls, raises and allocates between USR1 and USR2, and then prints the counts. Its argument is the
# number of forked workers that do the same.
class Costly < StandardError; end
class Thing; end
COUNTS = Hash.new(0)

def deep(left) = left.zero? ? raise(Costly) : deep(left - 1)

def costly
  deep(50)
rescue Costly
  COUNTS[:raised] += 1
end

def nap
  began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  sleep 0.002
  COUNTS[:napped] += Process.clock_gettime(Process::CLOCK_MONOTONIC) - began
end

def things = Array.new(10) { Thing.new }

def turn
  costly
  nap
  things
  COUNTS[:turns] += 1
  return unless (COUNTS[:turns] % 20).zero?

  GC.start
  COUNTS[:collected] += 1
end

def await(name)
  told = false
  trap(name) { told = true }
  -> { told }
end

go = await("USR1")
enough = await("USR2")
$stdout.sync = true
Integer(ARGV[0]).times { break unless fork }
puts "process #{Process.pid}"
sleep 0.01 until go.call
turn until enough.call
puts "counts #{Process.pid} #{COUNTS.values_at(:turns, :raised, :napped, :collected).join(" ")}"
loop { sleep 0.01 }
