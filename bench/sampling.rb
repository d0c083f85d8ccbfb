# frozen_string_literal: true

# Measures what samples cost a Ruby process: its CPU time under a tracer of samples, divided by that
# of the same work without a tracer.
#
#     sudo bundle exec ruby bench/sampling.rb [PAIRS]         # 60 pairs by default, a minute for each row
#     sudo bundle exec ruby bench/sampling.rb [PAIRS] paths   # with call paths, as `hot` traces
#
# Turns of the same work with and without a tracer alternate, each timed by the CPU clock of the
# process. The rows are one thread with stacks of 20 and of 100 frames, and 64 threads of which 2
# work and the others wait. Each row also has the process's own figure for looking.
require_relative "../spec/support/paths"
require_relative "../spec/support/await"
require_relative "../spec/support/child"
require_relative "../spec/support/elf"
require_relative "../spec/support/info"
require_relative "../spec/support/attacher"
require "fileutils"
require Support::AUTO
require_relative "../lib/probescope/tracing/info"

# A tracer of this process that attaches and detaches.
class Listener
  def initialize(*probes)
    @probe = probes.first
    target = Struct.new(:pid).new(Process.pid)
    @tracer = Support::Attacher.new(target, *probes, "stats__done", wait: false)
    @tracer.await_line(/\Aattached/)
    off
  end

  def on = say("attach", :on, :degraded)
  def off = say("detach", :off)

  def finish
    @tracer.close_stdin
    @tracer.wait
  end

  def state = Probescope.status[:probes].fetch(@probe.to_sym)

  private

  def say(word, *states)
    @tracer.puts(word)
    sleep 0.002 until states.include?(state.first)
  end
end

# The work of each turn. depth: frames below it.
class Work
  PIECES = 1_000

  def initialize(depth)
    @depth = depth
  end

  def done = PIECES.times { piece(@depth) }

  private

  def piece(depth)
    return piece(depth - 1) if depth.positive?

    i = 0
    i += 1 while i < 40_000
  end
end

PROBES = ARGV[1] == "paths" ? %w[stack__cpu stack__frame] : %w[sample__stats]

# Some threads work, and some wait.
class Turns
  def initialize(working:, waiting:, depth:)
    @working = working
    @work = Work.new(depth)
    @waiting = Array.new(waiting) { Thread.new { sleep } }
    address = Support::Info.of(Process.pid, Support::LIBRARY).address
    @info = Probescope::Tracing::Info.new(File.open("/proc/self/mem", "rb"), address)
    @added = []
  end

  def pairs(number)
    turn
    listener = Listener.new(*PROBES)
    number.times { pair(listener) }
    @reported = reported(listener)
    listener.finish
    @waiting.each(&:kill)
    self
  end

  def to_s
    mean, error = middle
    format("%+.2f ± %.2f %% of the CPU time, reported %.2f %%", mean * 100, error * 100, @reported * 100)
  end

  private

  def pair(listener)
    listener.on
    abort "samples are #{listener.state}" unless listener.state.first == :on
    traced = turn
    listener.off
    @added << ((traced / turn) - 1)
  end

  # Returns the process's own figure for several intervals in a row, without the attach and the
  # detach.
  def reported(listener)
    listener.on
    6.times { turn } # until the effects of the attach are flushed
    before = @info.looking
    20.times { turn }
    spent, cpu = @info.looking.zip(before).map { |now, earlier| now - earlier }
    listener.off
    spent.fdiv(cpu)
  end

  # Returns seconds of CPU time.
  def turn
    began = clock
    Array.new(@working) { Thread.new { @work.done } }.each(&:join)
    clock - began
  end

  def clock = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)

  # The mean of the middle half, because the machine has other work too. Its standard error comes
  # from the distance between the quartiles.
  def middle
    values = @added.sort
    half = values[(values.size / 4)...(values.size - (values.size / 4))]
    [half.sum / half.size, (half.last - half.first) / 1.349 * 1.09 / (values.size**0.5)]
  end
end

number = Integer(ARGV.fetch(0, 60))
{ "one thread, 20 frames" => { working: 1, waiting: 0, depth: 18 },
  "one thread, 100 frames" => { working: 1, waiting: 0, depth: 98 },
  "64 threads, 2 of them work" => { working: 2, waiting: 62, depth: 18 } }.each do |name, what|
  puts "#{RUBY_VERSION}: #{name}: #{Turns.new(**what).pairs(number)}; " \
       "load #{File.read("/proc/loadavg").split.first}"
end
