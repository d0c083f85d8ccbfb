# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/tracing"

# Each program notes the shortest possible time of its calls (measured inside) and the longest
# (measured outside). So the specs do not depend on the machine's speed.
RSpec.describe "slow-call probes", :bpf do
  fields = %i[function file line elapsed self path thread_id outcome span_id parent_id]
  # The probes with their thresholds in ns.
  thresholds = { function__slow1ms: 1_000_000, function__slow10ms: 10_000_000,
                 function__slow100ms: 100_000_000 }
  all = thresholds.to_h { |probe, _| [probe, fields] }

  define_method(:slow) { |run, probe = :function__slow1ms| run.events(probe) }
  def named(run, function) = slow(run).select { |event| event[:function] == function }
  def only(run, function) = named(run, function).tap { |events| expect(events.size).to eq(1), function }.first

  work = <<~RUBY
    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
    class Work
      attr_reader :took

      def initialize = @took = Hash.new { |hash, name| hash[name] = [] }

      # Calls a method, whose block is passed to #body.
      def call(name, *arguments)
        before = now
        public_send(name, *arguments)
      ensure
        @took[name] << [@inside.pop, now - before]
      end

      def leaf(ms) = body { sleep(ms / 1000.0) }
      def branch = body { call(:leaf, 2); call(:leaf, 12) }
      def root = body { call(:branch); call(:leaf, 105) }
      def quick = body { 1 }

      def body
        start = now
        yield
      ensure
        (@inside ||= []) << (now - start)
      end
    end
  RUBY

  it "fire every threshold that a call reached, once, with its times, its id and its caller's id" do
    run = trace(<<~RUBY, all, env: { "PROBESCOPE_FUNCTIONS" => "Work#leaf,Work#branch,Work#root,Work#quick" })
      #{work}
      Gate.on :function__slow1ms, :function__slow10ms, :function__slow100ms
      work = Work.new
      work.call(:root)
      2000.times { work.call(:quick) }
      Gate.done took: work.took, thread: Thread.current.native_thread_id
    RUBY
    thresholds.each do |probe, ns|
      %i[leaf branch root quick].each do |name|
        times = run.report[:took].fetch(name)
        fired = slow(run, probe).select { |event| event[:function] == "Work##{name}" }
        least, most = times.transpose.map { |measured| measured.count { |time| time >= ns } }
        expect(fired.size).to be_between(least, most), "#{name} #{probe}"
        expect(fired.map { |event| event[:elapsed] }).to all(be >= ns)
      end
    end
    expect(slow(run, :function__slow10ms).size).to be >= 4
    inside, outside = run.report[:took].fetch(:root).first
    root = only(run, "Work#root")
    branch = only(run, "Work#branch")
    line = File.readlines("#{run.directory}/app.rb").index { |text| text.include?("def root") } + 1
    expect(root).to include(elapsed: be_between(inside, outside), outcome: 0, parent_id: 0,
                            thread_id: run.report[:thread], line: line,
                            file: end_with("app.rb"), path: end_with("/app.rb"))
    expect(named(run, "Work#leaf").map { |leaf| leaf[:parent_id] })
      .to eq([branch[:span_id], branch[:span_id], root[:span_id]])
    expect(branch[:parent_id]).to eq(root[:span_id])
    [root, branch].each do |event|
      callees = slow(run).select { |other| other[:parent_id] == event[:span_id] }
      expect(event[:self] + callees.sum { |other| other[:elapsed] }).to be_within(10).of(event[:elapsed])
    end
    ids = slow(run).map { |event| event[:span_id] }
    expect(ids.uniq).to eq(ids)
    expect(ids).to all(be_positive)
    # A call has the same id at each threshold.
    expect(slow(run, :function__slow100ms).map { |event| event.values_at(:function, :span_id) })
      .to include(["Work#root", root[:span_id]])
    expect(slow(run, :function__slow10ms) - slow(run)).to eq([])
    expect(run.target.err).to be_empty
  end

  it "report whether an exception ended the call" do
    run = trace(<<~RUBY, all)
      class Risk
        def waits = sleep(0.002)
        def fails = (sleep(0.002); raise ArgumentError)
        def passes = fails
        def guards = (passes rescue waits)
        def tidies = begin; fails; ensure; waits; end
        def throws = (sleep(0.002); throw(:out))
        def catches = catch(:out) { throws }
      end
      Gate.on :function__slow1ms
      Risk.new.guards
      (Risk.new.tidies rescue 1)
      Risk.new.catches
      thread = Thread.new { Thread.current.report_on_exception = false; Risk.new.passes }
      (thread.join rescue 1)
      Gate.done thread: thread.inspect[/0x\\h+/]
    RUBY
    outcomes = slow(run).map { |event| event.values_at(:function, :outcome) }
    expect(outcomes).to eq([["Risk#fails", 1], ["Risk#passes", 1], ["Risk#waits", 0], ["Risk#guards", 0],
                            ["Risk#fails", 1], ["Risk#waits", 0], ["Risk#tidies", 1],
                            ["Risk#throws", 0], ["Risk#catches", 0], ["Risk#fails", 1], ["Risk#passes", 1]])
    parents = slow(run).to_h { |event| [event[:span_id], event[:function]] }
    expect(slow(run).first(4).map { |event| parents[event[:parent_id]] })
      .to eq(["Risk#passes", "Risk#guards", "Risk#guards", nil])
    expect(slow(run).map { |event| event[:thread_id] }.uniq.size).to eq(2)
  end

  it "fire once for a call in a fiber, at its end: elapsed includes suspensions, self does not" do
    run = trace(<<~RUBY, all)
      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
      class Stream
        def reads
          sleep 0.002
          pauses
          sleep 0.002
        end
        def pauses = Fiber.yield
        def resumes(fiber) = fiber.resume
        def each = (yield 1; yield 2)
      end
      Gate.on :function__slow1ms
      started = now
      fibers = Array.new(3) { Fiber.new { Stream.new.reads } }
      fibers.each(&:resume)
      suspended = now
      sleep 0.03
      resumed = now
      Stream.new.resumes(fibers[0])
      fibers[1].resume # the third is never finished
      steps = Stream.new.to_enum(:each)
      steps.next
      sleep 0.01
      steps.next
      (steps.next rescue 1)
      fibers = nil
      GC.start
      Gate.done whole: now - started, apart: resumed - suspended
    RUBY
    reads = named(run, "Stream#reads")
    pauses = named(run, "Stream#pauses")
    expect([reads.size, pauses.size]).to eq([2, 2])
    expect(pauses.map { |event| event[:parent_id] }).to match_array(reads.map { |event| event[:span_id] })
    apart = run.report[:apart]
    reads.zip(pauses).each do |read, pause|
      expect(read[:elapsed]).to be_between(apart + 4_000_000, run.report[:whole])
      expect(pause[:elapsed]).to be >= apart
      expect(pause[:self]).to be <= pause[:elapsed] - apart
      expect(read[:self]).to be_between(4_000_000, read[:elapsed] - pause[:elapsed])
      expect(read[:parent_id]).to eq(0)
    end
    expect(only(run, "Stream#each")).to include(elapsed: be >= 10_000_000)
    expect(only(run, "Stream#each")[:self]).to be <= only(run, "Stream#each")[:elapsed] - 10_000_000
    # The resuming fiber was suspended while the other fiber ran.
    resumes = only(run, "Stream#resumes")
    expect(resumes[:self]).to be <= resumes[:elapsed] - 2_000_000
    expect(resumes[:parent_id]).to eq(0)
  end

  it "do not fire for calls that began before the attach" do
    run = start(<<~RUBY, all)
      class Long
        def outer = inner
        def inner = (Gate.on(:function__slow1ms, :function__slow100ms); sleep(0.12); step)
        def step = sleep(0.002)
      end
      Long.new.outer
      Gate.done
    RUBY
    run.finish
    expect(slow(run).map { |event| event[:function] }).to eq(["Long#step"])
    expect(only(run, "Long#step")).to include(parent_id: 0)
    expect(slow(run, :function__slow100ms)).to eq([])
    run.target.await_off(*thresholds.keys.map(&:to_s))
  end

  it "fire only the threshold that is traced, also beside statistics" do
    run = trace(<<~RUBY, { function__slow10ms: fields, function__stats: %i[function calls self elapsed max] })
      class Work
        def brief = sleep(0.002)
        def long = (brief; sleep(0.02))
      end
      Gate.on :function__slow10ms, :function__stats
      Work.new.long
      states = Probescope.status[:probes].slice(:function__slow1ms, :function__slow100ms)
      Gate.done states: states.transform_values(&:first)
    RUBY
    long = slow(run, :function__slow10ms).find { |event| event[:function] == "Work#long" }
    totals = run.totals(:function__stats)
    expect(totals["Work#long"])
      .to include(calls: 1, elapsed: long[:elapsed], self: long[:self], max: long[:elapsed])
    expect(totals["Work#brief"][:calls]).to eq(1)
    expect(run.report[:states]).to eq(function__slow1ms: "off", function__slow100ms: "off")
  end
end
