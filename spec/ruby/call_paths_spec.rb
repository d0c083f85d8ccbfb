# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/tracing"

RSpec.describe "call paths", :bpf do
  fields = { stack__frame: %i[function line id parent path defined flags],
             stack__cpu: %i[stack_id thread_id count weight looked request],
             sample__stats: %i[function self], stats__done: %i[sequence] }

  yjit = system(RbConfig.ruby, "--yjit", "-e", "exit RubyVM::YJIT.enabled?", out: File::NULL, err: File::NULL)

  # Events before the first flush are of probes that were attached one after the other.
  def counted(run, probe) = run.sequence(:stats__done, probe).drop_while { |one| !one.key?(:sequence) }

  # {names of the frames, the outermost one first => [count, weight]}
  def paths(run)
    frames = run.events(:stack__frame).to_h { |frame| [frame[:id], frame] }
    counted(run, :stack__cpu).reject { |one| one.key?(:sequence) }.each_with_object({}) do |event, found|
      names = []
      id = event[:stack_id]
      until id.zero?
        frame = frames.fetch(id)
        names.unshift("#{frame[:function]}:#{frame[:line]}")
        id = frame[:parent]
      end
      sum = found[names] ||= [0, 0]
      sum[0] += event[:count]
      sum[1] += event[:weight]
    end
  end

  program = <<~RUBY
    def spin = (n = 0; n += 1 while n < 2_000)
    def left = spin
    def right = spin
    def outer = [1].each { left; left; left; right }
    Gate.on :stack__cpu, :stack__frame, :sample__stats
    ends = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) + 2
    outer while Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) < ends
    Gate.done
  RUBY

  it "have the CPU time of samples, split by callers, and whole paths" do
    run = trace(program, fields)
    found = paths(run)
    whole = found.values.sum(&:last)
    expect(whole).to eq(counted(run, :sample__stats).sum { |row| row[:self].to_i })
    left, right = %w[left right].map do |name|
      found.select { |names, _| names.any? { |one| one.start_with?("Object##{name}:") } }.values.sum(&:last)
    end
    expect(left.to_f / (left + right)).to be_within(0.13).of(0.75)
    names = found.keys.find { |one| one.last.start_with?("Object#spin:") }.map { |one| one[/\A[^:]+/] }
    expect(names.first).to eq("<main>")
    expect(names.last(5)).to match(["Object#outer", "Array#each", "Object#outer",
                                    a_string_matching(/\AObject#(left|right)\z/), "Object#spin"])
  end

  it "tell which files are the application's, and where functions are defined" do
    frames = trace(program, fields).events(:stack__frame)
    own, others = frames.partition { |frame| frame[:flags] == 1 }
    expect(own.map { |frame| frame[:function] }).to include("Object#outer", "Object#spin")
    expect(others.map { |frame| frame[:function] }).to include("Array#each")
    spin = frames.find { |frame| frame[:function] == "Object#spin" }
    expect(spin[:defined]).to eq(spin[:line])
  end

  it "begin with a frame of their own where the stack had more frames than are read" do
    run = trace(<<~RUBY, fields)
      def spin = (n = 0; n += 1 while n < 2_000)
      def deep(n) = n.zero? ? spin : deep(n - 1)
      Gate.on :stack__cpu, :stack__frame
      ends = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) + 1.5
      (deep(100); deep(300)) while Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) < ends
      Gate.done
    RUBY
    names = paths(run).keys.select { |all| all.last.start_with?("Object#spin:") }
    cut, whole = names.partition { |all| all.first == "(deeper than 256 frames):0" }
    expect([cut, whole]).to all(be_any)
    expect(cut.map(&:size)).to all(eq(257))
    expect(whole.map(&:first)).to all(start_with("<main>:"))
  end

  # A job that came later would find another function there.
  if yjit && RUBY_VERSION >= "3.3"
    it "have the line of compiled code, which is not written down while the code runs" do
      run = trace(<<~RUBY, fields, options: ["--yjit", "--yjit-call-threshold=10"])
        %w[one two three four].each { |name| eval "def \#{name}\n  n = 0\n  n += 1 while n < 50_000\nend" }
        Gate.on :stack__cpu, :stack__frame
        ends = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) + 2
        (one; two; three; four) while Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) < ends
        Gate.done
      RUBY
      leaves = paths(run).map { |names, (_, weight)| [names.last, weight] }
                         .select { |name, _| name.match?(/\AObject#(one|two|three|four):/) }
      without = leaves.select { |name, _| name.end_with?(":0") }
      expect(without.sum(&:last).to_f / leaves.sum(&:last)).to be < 0.2
    end
  end

  it "have the same ids after a fork" do
    run = trace(<<~RUBY, fields)
      def spin = (n = 0; n += 1 while n < 2_000)
      def work(seconds)
        ends = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) + seconds
        spin while Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) < ends
      end
      Gate.on :stack__cpu, :stack__frame
      work(1.5)
      Process.wait(fork { work(2.5) })
      work(1.5)
      Gate.done
    RUBY
    ids = run.events(:stack__frame).select { |frame| frame[:function] == "Object#spin" }
             .group_by { |frame| frame[:line] }
             .transform_values { |all| all.map { |one| one[:id] }.uniq.size }
    expect(ids.values).to all(be <= 2) # called by work alone, at one line, from three lines of <main>
  end
end
