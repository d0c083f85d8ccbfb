# frozen_string_literal: true

require_relative "peers"

# The process that is measured. It reads one command a line and answers with one line:
#
#   measure call|raise|...   (see WORK)   -> ns of this thread's CPU for one of them, the least of
#                                            several rounds
#   start PEER / stop PEER                -> ok: switches a peer on or off, see Peers
#   spin                                  -> ok: runs for a moment, because a sleeping Ruby switches
#                                            no hooks
#
# The loop around the work is also measured, and subtracted. The figure is CPU time, because wall
# time would include other programs.
module Subject
  ROUNDS = 7
  # A JIT compiles what was called this often.
  WARM_UP = 100
  # How often the work runs in a round: enough for a few ms.
  WORK = { "call" => 200_000, "shared_call" => 200_000, "line" => 200_000, "turn" => 4_000,
           "raise" => 10_000, "deep_raise" => 4_000, "deepest_raise" => 500,
           "alloc" => 100_000, "strings" => 1_000, "caller" => 10_000 }.freeze
  # Frames below the raise.
  DEPTHS = { "raise" => 10, "deep_raise" => 100, "deepest_raise" => 1000 }.freeze

  def self.callee; end

  module_function

  # Two classes have this method: the module, and its singleton class.
  def shared_callee; end

  def raise_at(depth)
    depth.zero? ? raise(ArgumentError, "x") : raise_at(depth - 1)
  end

  def call(times)
    i = 0
    while i < times
      callee
      i += 1
    end
  end

  def shared_call(times)
    i = 0
    while i < times
      shared_callee
      i += 1
    end
  end

  # Each round of the loop has one line. The condition's line does not count. #nothing has no line.
  def line(times)
    i = 0
    while i < times
      i += 1
    end
  end

  # Another thread requests the VM lock all the time.
  def turn(times)
    partner = Thread.new { loop { Thread.pass } }
    i = 0
    while i < times
      Thread.pass
      i += 1
    end
  ensure
    partner.kill.join
  end

  # The descent is part of the work and equal in every run, so a difference belongs to the raise.
  def raise_and_rescue(times, depth)
    i = 0
    while i < times
      begin
        raise_at(depth)
      rescue ArgumentError
        nil
      end
      i += 1
    end
  end

  # Each exception is new, because an exception keeps its strings.
  def make_strings(times, depth)
    i = 0
    while i < times
      begin
        raise_at(depth)
      rescue ArgumentError => e
        e.backtrace
      end
      i += 1
    end
  end

  def ask_caller(times)
    i = 0
    while i < times
      caller(1, 1)
      i += 1
    end
  end

  def alloc(times)
    i = 0
    while i < times
      Object.new
      i += 1
    end
  end

  def nothing(times)
    i = 0
    i += 1 while i < times
  end

  def run(work, times)
    case work
    when "call" then call(times)
    when "shared_call" then shared_call(times)
    when "line" then line(times)
    when "turn" then turn(times)
    when "alloc" then alloc(times)
    when "strings" then make_strings(times, DEPTHS.fetch("deep_raise"))
    when "caller" then ask_caller(times)
    else raise_and_rescue(times, DEPTHS.fetch(work))
    end
  end

  def cpu_ns = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID, :nanosecond)

  # Returns the ns of CPU for one of them.
  def measure(work)
    times = WORK.fetch(work)
    WARM_UP.times { run(work, 2) }
    best = Array.new(ROUNDS) do
      GC.start
      start = cpu_ns
      run(work, times)
      middle = cpu_ns
      nothing(times)
      (middle - start) - (cpu_ns - middle)
    end.min
    best.fdiv(times)
  end
end

$stdout.sync = true
puts "ready"
while (line = $stdin.gets)
  command, what = line.split
  case command
  when "measure" then puts "ns #{Subject.measure(what)}"
  when "spin"
    finish = Subject.cpu_ns + 20_000_000
    nil while Subject.cpu_ns < finish
    puts "ok"
  when "start" then puts "ok #{Peers.start(what) && what}"
  when "stop" then puts "ok #{Peers.stop(what).class}"
  end
end
