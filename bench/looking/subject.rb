# frozen_string_literal: true

# The program that bench/looking.rb traces. It does one kind of work without end. On SIGUSR1 it
# prints the number of units so far and its CPU seconds.
class Subject
  def empty; end
  def raise_at(depth) = depth.zero? ? raise(ArgumentError, "x") : raise_at(depth - 1)

  def calls(times)
    times.times { empty }
  end

  def raises(times)
    times.times do
      raise_at(10)
    rescue ArgumentError
      nil
    end
  end

  def allocations(times)
    times.times { Object.new }
  end
end

work, times = ARGV
units = 0
$stdout.sync = true
trap("USR1") { puts "units=#{units} cpu=#{Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)}" }
subject = Subject.new
puts "ready"
loop { subject.public_send(work, times.to_i) && units += 1 }
