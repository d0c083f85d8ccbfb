# frozen_string_literal: true

# The process that is measured. It takes one command a line and answers with one line:
#
#   measure call|line|turn|raise|deep_raise|alloc   -> ns of this thread's CPU for one of them, the least of several rounds
#   start PEER / stop PEER                -> ok: switches a peer on or off, see Peers
#   spin                                  -> ok: runs for a moment, for a sleeping Ruby switches no hooks
#
# The loop around the work is measured as well and taken off. CPU time and not wall time: another program on the
# machine must not show.
module Subject
  ROUNDS = 7
  # How often in a round; enough for a few ms of work each.
  WORK = { "call" => 200_000, "line" => 200_000, "turn" => 4_000, "raise" => 10_000, "deep_raise" => 4_000, "alloc" => 100_000 }.freeze
  # Frames below the raise.
  SHALLOW = 10
  DEEP = 100

  module_function

  def callee; end

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

  # One line in each round of the loop; the condition's does not count, and in #nothing there is none.
  def line(times)
    i = 0
    while i < times
      i += 1
    end
  end

  # Another thread wants the VM lock all the time.
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

  # The descent is part of the work and the same in every run, so differences are the raise's.
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
    when "line" then line(times)
    when "turn" then turn(times)
    when "raise" then raise_and_rescue(times, SHALLOW)
    when "deep_raise" then raise_and_rescue(times, DEEP)
    when "alloc" then alloc(times)
    end
  end

  def cpu_ns = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID, :nanosecond)

  # ns of CPU for one of them.
  def measure(work)
    times = WORK.fetch(work)
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

# What one would use without probescope.
module Peers
  module_function

  def start(name)
    case name
    when "ruby_prof"
      require "ruby-prof"
      @profile = RubyProf::Profile.new(measure_mode: RubyProf::WALL_TIME).tap(&:start)
    when "stackprof" then stackprof(mode: :wall, interval: 10_000)
    when "stackprof_object" then stackprof(mode: :object, interval: 1)
    when "tracepoint_call" then trace(:call, :return) { |event| @calls[event.method_id] += 1 }
    when "tracepoint_line" then trace(:line) { |event| @calls[event.lineno] += 1 }
    when "tracepoint_raise" then trace(:raise) do |event|
      @calls[[event.path, event.lineno]] += event.raised_exception.backtrace_locations.size
    end
    when "allocation_tracing"
      require "objspace"
      ObjectSpace.trace_object_allocations_start
    end
  end

  def stop(name)
    case name
    when "ruby_prof" then @profile.stop
    when "stackprof", "stackprof_object" then StackProf.stop && StackProf.results
    when "tracepoint_call", "tracepoint_line", "tracepoint_raise" then @trace.disable
    when "allocation_tracing"
      ObjectSpace.trace_object_allocations_stop
      ObjectSpace.trace_object_allocations_clear
    end
  end

  def stackprof(**options)
    require "stackprof"
    StackProf.start(**options)
  end

  def trace(*events, &block)
    @calls = Hash.new(0)
    @trace = TracePoint.new(*events, &block).tap(&:enable)
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
