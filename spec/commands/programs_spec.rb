# frozen_string_literal: true

require "spec_helper"
require "probescope/tracing/program"
require "probescope/otel/program"
require "support/host_helpers"

RSpec.describe "The bpftrace programs, by themselves", :bpf do
  let(:programs) { Dir[File.join(Support::ROOT, "providers/*.bt")] }

  # Runs a program on a process until all its probes are attached, and then for some flushes. A
  # bpftrace that ended earlier would detach the probes of rows first, and would print intervals
  # without rows.
  def run_program(path, process, lines: nil)
    wanted = File.read(path).scan(/^usdt:\$1:probescope:(\w+)/).flatten & info_of(process).probes.keys
    # bpftrace 0.24 and later warns of a missing positional parameter.
    tracer = tracer(path, pid: process.pid, args: File.basename(path).start_with?("slow") ? ["*", "0"] : [])
    await("#{path} attached", within: 60) do
      info_of(process).probes.values_at(*wanted).all? { |probe| probe[:enabled].positive? }
    end
    await_flushes(process, 4) unless path.end_with?("raises.bt", "all.bt") # no statistics
    tracer.await_line(lines) if lines
    tracer.finish
    tracer
  end

  # Returns whether bpftrace prints the line about its own environment.
  def of_its_own?(line) = line.match?(/RLIMIT_MEMLOCK|available_filter_functions|deprecated|\AAttached/)

  it "open with the question, a usage line and sample output" do
    programs.each do |path|
      text = File.read(path)
      expect(text).to match(%r{\A#!/usr/bin/env bpftrace\n/\*\n \* \S.*\n}), path
      # A program that prints long texts needs a setting of bpftrace.
      expect(text).to match(/sudo (?:BPFTRACE_\w+=\d+ )?bpftrace -p PID #{File.basename(path)}/), path
      expect(text).not_to include("SAMPLE"), path
    end
  end

  # Without room in its map, the program would print every frame of every flush.
  it "stacks.bt: prints a frame a few times, also when its maps have no room for more" do
    process = host_target("--rows", 10, "--moving", 20, "--period", 20)
    room = %w[BPFTRACE_MAP_KEYS_MAX BPFTRACE_MAX_MAP_KEYS].to_h { |name| [name, "64"] }
    path = Probescope::Tracing::Program.path("stacks.bt")
    tracer = tracer(path, pid: process.pid, env: {"BPFTRACE_STRLEN" => "200", **room})
    await("the attach", within: 60) { info_of(process).semaphore("stack__cpu").positive? }
    await_flushes(process, 140)
    frames = tracer.finish.scan(/^f \d+ \d+ (\d+) /).flatten.tally.except("1")
    expect(frames.size).to be > 100
    # bpftrace empties the map in user space, so it prints some frames more often on a busy machine.
    expect(frames.values.sum.fdiv(frames.size)).to be < 8
  end

  # bpftrace attaches the last probe of a program first. If stats__done were attached before the
  # others, an interval could begin before the others count. This happened on machines where
  # bpftrace attaches slowly.
  it "have stats__done first, so that it is attached last" do
    counting = programs.select { |path| File.read(path).include?(":stats__done") }
    expect(counting.size).to be > 10
    expect(counting.map { |path| File.read(path)[/^usdt:\$1:probescope:(\w+)/, 1] }.uniq)
      .to eq(["stats__done"])
  end

  # A thread reports where its record is at its first call. Events before that have no function.
  it "have function__here last, so that it is attached first" do
    told = programs.select { |path| File.read(path).include?(":function__here") } - following
    expect(told).not_to be_empty
    expect(told.map { |path| File.read(path).scan(/^(?:usdt|tracepoint):\S+:(\w+)/).flatten.last }.uniq)
      .to eq(["function__here"])
  end

  # These programs follow what all threads do from the first report of a thread on, and add it up at
  # a switch. bpftrace attaches tracepoints in the order of the text, before usdt probes.
  def following = programs.select { |path| File.read(path).include?("@followed") }

  it "have function__here second if they follow threads, and the switch as the first tracepoint" do
    expect(following).not_to be_empty
    names = following.map { |path| File.read(path).scan(/^(?:usdt|tracepoint):\S+:(\w+)/).flatten }
    expect(names.map { |all| all.first(3) }.uniq).to eq([%w[stats__done function__here sched_switch]])
    expect(names.map { |all| all.count("sched_switch") }.uniq).to eq([1])
  end

  it "count with count() and sum() where several threads run at the same time" do
    kernel = programs.select { |path| Probescope::Tracing::Program.tracepoints(path).any? }
    expect(kernel).not_to be_empty
    expect(kernel.select { |path| File.read(path).match?(/\] \+= /) }).to eq([])
  end

  it "have stats__done first in the bridge's program, too, for every set of signals" do
    [true, false].repeated_permutation(3) do |exceptions, metrics, messages|
      program = Probescope::Otel::Program.new(slow: 10_000_000, exceptions: exceptions, metrics: metrics,
                                              messages: messages)
      all = program.text.scan(/^usdt:\$1:probescope:(\w+)/).flatten
      expect([all.first, all.count("stats__done")]).to eq(["stats__done", 1])
    end
  end

  it "read the messages of exceptions only in raises.bt" do
    reading = programs.select { |path| File.read(path).include?("exception__detail") }
    expect(reading.map { |path| File.basename(path) }).to eq(["raises.bt"])
  end

  it "print their largest rows last, and no row twice" do
    {"exceptions.bt" => %w[raised backtrace_ns], "hot.bt" => %w[total_ns self_ns],
     "calls.bt" => %w[calls self_ns],
     "alloc.bt" => %w[allocated bytes], "lines.bt" => %w[self_ns],
     "backtraces.bt" => %w[calls total_ns]}.each do |name, maps|
      out = run_program(File.join(Support::ROOT, "providers", name), host_target("--rows", 25)).out
      maps.each do |map|
        lines = out.scan(/^@#{map}\[\d+, .*, (\d+)\]: \d+$/).flatten
        expect(lines.size).to eq(20), out
        expect(lines.last).to eq("34") unless map == "calls" && name == "backtraces.bt"
      end
      expect(out).to match(/^@wall_ns\[\d+\]: \d+$/)
      expect(out).not_to match(/^@row\[/)
    end
  end

  it "print a line for each event if they are about events" do
    raises = File.join(Support::ROOT, "providers/raises.bt")
    expect(run_program(raises, host_target, lines: /Error0/).out)
      .to include("Error0 at /app/lib/parser.rb:10, 100 frames, 1000 ns: a message\n")
    flow = File.join(Support::ROOT, "providers/flow.bt")
    expect(run_program(flow, host_target, lines: /^< \d+ \d+ \d+ 1 1 2000 1000 1\tParser#step1$/).out)
      .to match(%r{^> \d+ \d+ \d+ 1 0 10\tParser#step0\t/app/lib/parser\.rb$})
    {"stat.bt" => "6 6 60000000 6 240 3000000 3 2 5 7",
     "light.bt" => "0 6 60000000 0 0 3000000 3 2 5 7"}.each do |name, figures|
      # perhaps not the first line: the probes are attached one after the other
      line = /^= \d+ 1000000000 500000000 #{figures}( \d+)+$/
      expect(run_program(File.join(Support::ROOT, "providers", name), host_target, lines: line).out)
        .to match(line)
    end
  end

  it "have no warnings", full: "it compiles every program, and other examples run most of them" do
    programs.each do |path|
      # Each warning is followed by two lines of the program. The head of each program explains a
      # missing parameter. bpftrace 0.27 warns of casts that 0.23 needs, and of the result of
      # delete(), which 0.17 does not have. 0.27 also warns where an address of the process meets a
      # literal. It does not matter, because each read of such an address has an uptr() of its own.
      known = /Positional parameter \$\d is empty|Unnecessary cast:|Return value discarded|Addrspace mismatch/
      said = run_program(path, host_target).err.gsub(/^.*WARNING: (#{known}).*\n.*\n.*\n/, "")
      complaints = said.lines.reject { |line| line.strip.empty? || of_its_own?(line) }
      expect(complaints).to be_empty, "#{path}: #{complaints}"
    end
  end
end
