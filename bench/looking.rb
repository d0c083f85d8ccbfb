# frozen_string_literal: true

# Checks the cost of looking that a command reports. Runs one kind of work in a process, in turns
# with and without a tracer. Compares the process's own share with the additional CPU time of a unit
# of work. As root:
#
#   bundle exec ruby bench/looking.rb     # PYTHON=/path/to/python: another Python
require "fileutils"
require "json"
require "timeout"
%w[paths await elf info child python target bpf tracer attacher].each do |name|
  require_relative "../spec/support/#{name}"
end
require_relative "../lib/probescope/tracing/info"

class Looking
  TURNS = 4
  # {kind of work => [probe, units of work at a time]}
  WORK = {"calls" => ["function__stats", 1000],
          "raises" => ["exception__stats", 50],
          "allocations" => ["object__stats", 500]}.freeze

  def initialize(script)
    @script = script
  end

  # Returns [microseconds a unit, the same with a tracer, the true share, the process's share].
  def measure(work)
    probe, times = WORK.fetch(work)
    program = Support::Target.new(@script, work, times.to_s, env: {"PROBESCOPE_FUNCTIONS" => "all"}).ready
    turns = Array.new(TURNS) { turn(program, probe) }
    plain, traced = turns.map { |each| each[0] }, turns.map { |each| each[1] }
    told = turns.map { |each| each[2] }
    before, after = [plain, traced].map do |all|
      all.sum { |seconds, _| seconds } / all.sum { |_, units| units }
    end
    [before * 1e6, after * 1e6, (after - before) / after, told.sum(&:first).fdiv(told.sum(&:last))]
  ensure
    program&.kill_all
  end

  private

  def turn(program, probe)
    plain = spent(program) { sleep 1.5 }
    library = program.info.address && @script.end_with?(".py") ? Support::Python.library : Support::LIBRARY
    attacher = Support::Attacher.new(program, probe, "stats__done", library: library)
    attacher.attached
    program.await_on(probe)
    first = looking(program)
    traced = spent(program) { sleep 2.5 }
    last = looking(program)
    attacher.detach
    program.await_off(probe)
    [plain, traced, last.zip(first).map { |now, before| now - before }]
  ensure
    attacher&.kill_all
  end

  # Returns the [CPU seconds, units of work] during the block.
  def spent(program)
    first = program.counters
    yield
    last = program.counters
    %w[cpu units].map { |name| last[name] - first[name] }
  end

  def looking(program)
    @memory ||= File.open("/proc/#{program.pid}/mem", "rb")
    Probescope::Tracing::Info.new(@memory, program.info.address).looking
  end
end

%w[rb py].each do |suffix|
  Looking::WORK.each_key do |work|
    before, after, truth, said = Looking.new(File.join(__dir__, "looking/subject.#{suffix}")).measure(work)
    puts format("%-4<suffix>s %-12<work>s %7.1<before>f -> %7.1<after>f us a unit, " \
                "looking: measured %5.1<truth>f %%, reported %5.1<said>f %%",
                suffix: suffix, work: work, before: before, after: after,
                truth: truth * 100, said: said * 100)
  end
end
