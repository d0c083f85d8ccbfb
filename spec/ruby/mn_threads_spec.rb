# frozen_string_literal: true

require_relative "../spec_helper"
require "support/schemas"
require_relative "support/tracing"

# Ruby threads share native threads. After a wait, also in the middle of a hook, a Ruby thread may
# continue on another native thread. So a hook must not store a thread's data with the native
# thread.
RSpec.describe "with RUBY_MN_THREADS=1", :bpf do
  before { skip "of another Ruby: 3.3 and later" if RUBY_VERSION < "3.3" }

  it "the allocations of hooks are left out on their own thread only" do
    fields = { object__stats: %i[class file line allocated], function__stats: %i[function calls] }
    run = trace(<<~'RUBY', fields, env: { "RUBY_MN_THREADS" => "1", "RUBY_MAX_CPU" => "4" })
      class Box; end
      class Made; end
      # The hook calls this for compiled text. Here it waits while other threads run.
      class TracePoint
        alias instruction_sequence_before instruction_sequence
        def instruction_sequence
          sleep 0.001
          instruction_sequence_before
        end
      end
      def boxes(n) = (i = 0; (Box.new; i += 1) while i < n)
      def evaluate(n) = eval("def made_#{n} = Made.new\nmade_#{n}")
      Gate.on :object__stats, :function__stats
      threads = Array.new(12) do |t|
        Thread.new do
          Array.new(30) do |i|
            evaluate(t * 100 + i)
            boxes(50)
            Thread.pass
            Thread.current.native_thread_id
          end
        end
      end
      Gate.done natives: threads.flat_map(&:value).uniq.size
    RUBY
    expect(run.report[:natives]).to be < 12
    allocated = run.totals(:object__stats, :class).transform_values { |row| row[:allocated] }
    expect(allocated).to include("Box" => 12 * 30 * 50, "Made" => 12 * 30)
    run.target.await_off("object__stats", "function__stats")
  end

  it "samples are charged at the next check, whichever number switches it on" do
    %w[1 2].each do |number|
      target, = program("Gate.done", env: { "RUBY_MN_THREADS" => number })
      target.await_line(/\Areport/)
      tracer = attacher(target, "sample__stats").tap(&:attached)
      expect(target.info.probes.fetch("sample__stats"))
        .to include(state: :degraded, reason: /threads share native ones/)
      tracer.finish
    end
  end

  # GIVEN calls that wait, continue on a native thread on which another thread has run, and leave
  # their fiber without a further call.
  it "the time until a fiber continues is not charged to its calls" do
    fields = { function__slow10ms: %i[function elapsed self] }
    run = trace(<<~'RUBY', fields, env: { "RUBY_MN_THREADS" => "1", "RUBY_MAX_CPU" => "2" })
      class Source
        def rests = (sleep 0.001; Fiber.yield)
        def short = nil
      end
      Gate.on :function__slow10ms
      threads = Array.new(8) do
        Thread.new do
          Array.new(20) do
            fiber = Fiber.new { Source.new.rests }
            fiber.resume
            began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
            10.times { Source.new.short; sleep 0.005 }
            paused = Process.clock_gettime(Process::CLOCK_MONOTONIC) - began
            fiber.resume
            paused
          end
        end
      end
      Gate.done paused: threads.flat_map(&:value).sum
    RUBY
    rests = run.events(:function__slow10ms).select { |event| event[:function] == "Source#rests" }
    expect(rests.size).to eq(160)
    without = rests.sum { |event| event[:elapsed] - event[:self] } / 1e9
    expect(without).to be_within(0.05 * run.report[:paused]).of(run.report[:paused])
  end
end

# A process works once for each SIGUSR1. Each method waits, so that its Ruby thread leaves its native
# thread, and then makes calls that are known, without a traced call in between. There are two native
# threads for all of them, and that of the main thread.
RSpec.describe "the commands of kernel events, with RUBY_MN_THREADS=1", :bpf do
  before { skip "of another Ruby: 3.3 and later" if RUBY_VERSION < "3.3" }

  work = <<~'RUBY'
    require "json"
    $stdout.sync = true
    FOLDER = ARGV.first
    FILE = File.join(FOLDER, "known")
    File.write(FILE, "x")
    LOCK = Mutex.new
    THREADS = 12
    ROUNDS = 10

    # It waits in each way that Ruby has, and makes calls of one kind.
    class Worker
      def naps
        sleep 0.002
        5.times { File.stat(FILE) }
        7.times { Process.getpriority(Process::PRIO_PROCESS, 0) }
      end

      def takes(queue)
        queue.pop
        3.times { File.readlink(FILE) rescue nil }
      end

      def locks
        LOCK.synchronize do
          sleep 0.0005
          2.times { Dir.mkdir(FOLDER) rescue nil }
        end
        File.stat(FILE)
      end

      def reads(pipe)
        pipe.readpartial(1)
        2.times { File.chmod(0o644, FILE) }
        Process.getpriority(Process::PRIO_PROCESS, 0)
      end

      def in_fiber
        2.times do
          sleep 0.001
          File.stat(FILE)
          Fiber.yield
        end
      end

      def fibers
        fiber = Fiber.new { in_fiber }
        2.times do
          fiber.resume
          Thread.pass
          sleep 0.001
          4.times { File.chmod(0o644, FILE) }
        end
      end

      def takes_turns
        till = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + 0.002
        Thread.pass while Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) < till
        6.times { File.stat(FILE) }
      end

      # It waits in a system call, and keeps its native thread.
      def keeps = File.open(FILE) { |file| file.flock(File::LOCK_EX) }

      def parks(queue) = queue.pop
    end

    class Pool
      def feed(queue, pipes)
        ROUNDS.times do
          sleep 0.002
          THREADS.times { queue << 1 }
          pipes.each { |pipe| pipe.syswrite("x") }
        end
      end

      def rounds(queue, pipe)
        worker = Worker.new
        Array.new(ROUNDS) do
          worker.naps
          worker.takes(queue)
          worker.locks
          worker.reads(pipe)
          worker.fibers if RUBY_VERSION < "3.4" # see here_spec.rb
          worker.takes_turns
          Thread.current.native_thread_id
        end
      end

      # A thread that waits for a file lock keeps its native thread, so Ruby makes more of them.
      def keep_some
        Array.new(3) do
          Thread.new { loop { File.open(FILE) { |file| file.flock(File::LOCK_EX); sleep 0.003 } } }
        end
      end

      def work
        keepers = keep_some
        queue = Queue.new
        pipes = Array.new(THREADS) { IO.pipe }
        feeder = Thread.new { feed(queue, pipes.map(&:last)) }
        threads = pipes.map { |pipe, _| Thread.new { rounds(queue, pipe) } }
        # It shares native threads with them, and has no functions. Its first calls may be on one that
        # has not run a traced function yet.
        other = Ractor.new(FOLDER.dup.freeze) { |path| 80.times { Dir.mkdir(path) rescue sleep(0.001) } }
        natives = threads.map { |thread| thread.value.uniq }
        [feeder, *keepers.each(&:kill)].each(&:join)
        other.take
        pipes.flatten.each(&:close)
        {natives: natives.flatten.uniq.size, moved: natives.count { |some| some.size > 1 }}
      end

      # Returns the ns that the thread was off the CPU, by its own clocks.
      def off_cpu
        clocks = [Process::CLOCK_MONOTONIC, Process::CLOCK_THREAD_CPUTIME_ID]
        before = clocks.map { |clock| Process.clock_gettime(clock, :nanosecond) }
        yield
        wall, cpu = clocks.zip(before).map { |clock, ns| Process.clock_gettime(clock, :nanosecond) - ns }
        wall - cpu
      end

      # Twelve threads wait in a queue and one for a file lock, while the native threads are idle.
      def park
        kept = nil
        parked = off_cpu { kept = park_for(1) }
        {kept: kept, parked: parked}
      end

      def park_for(seconds)
        queue = Queue.new
        parked = Array.new(THREADS) { Thread.new { Worker.new.parks(queue) } }
        file = File.open(FILE)
        file.flock(File::LOCK_EX)
        keeper = Thread.new { off_cpu { Worker.new.keeps } }
        sleep seconds
        file.close
        THREADS.times { queue << 1 }
        parked.each(&:join)
        keeper.value
      end

      def serve
        trap("USR1") { $go = :work }
        trap("USR2") { $go = :park }
        puts "ready"
        loop do
          sleep 0.01
          next unless $go

          go, $go = $go, nil
          puts "worked #{JSON.generate(public_send(go))}"
        end
      end
    end

    Pool.new.serve
  RUBY

  before do
    @folder = Dir.mktmpdir
    File.write(File.join(@folder, "worker.rb"), work)
  end
  after { FileUtils.rm_rf(@folder) }

  def pool
    @pool ||= target(File.join(@folder, "worker.rb"), @folder,
                     env: { "RUBY_MN_THREADS" => "1", "RUBY_MAX_CPU" => "2" }).ready
  end

  # Runs a command while the process works once. Returns its JSON, and what the process said.
  def traced(signal, *words)
    command = probescope_start(*words, "-p", pool.pid, "-d", 600, "--json")
    command.await_line(/probescope: listens to/, stream: :err, within: 600)
    pool.await_on("function__here")
    flushes = pool.info.header[:flushes]
    await("its interval", within: 60) { pool.info.header[:flushes] >= flushes + 3 }
    pool.signal(signal)
    said = JSON.parse(pool.await_line(/\Aworked (.*)/, within: 240)[1])
    expect(pool.info.probes["function__here"]).to include(state: :on)
    expect(command.stop(:INT).exitstatus).to eq(0), command.err
    [JSON.parse(command.out).tap { |told| expect(told).to fit_the_schema_of(words.first) }, said]
  end

  # {[function, call] => how often}, of the methods of Worker. Other calls are of Ruby's scheduler, on
  # the thread that waits or wakes another one.
  def calls(told)
    of_worker = told["rows"].select { |row| row["function"]&.start_with?("Worker#") }
    groups = of_worker.group_by { |row| [row["function"], kind(row["call"])] }
    groups.transform_values { |rows| rows.sum { |row| row["calls"] } }.reject { |(_, call), _| call.nil? }
  end

  # Not all machines and versions of glibc have the same calls.
  def kind(call)
    case call
    when /\A(stat|newfstatat|statx)\z/ then :stat
    when /\A(mkdir|readlink|fchmod|chmod|getpriority)/ then Regexp.last_match(1).delete_prefix("f").to_sym
    end
  end

  it "count the calls of each function where it waits, moves to another native thread and goes on" do
    of_fibers = { ["Worker#in_fiber", :stat] => 240, ["Worker#fibers", :chmod] => 960 }
    told, said = traced(:USR1, "syscalls")
    expect(said).to include("natives" => be < 12, "moved" => be_positive)
    expect(calls(told)).to eq({
      ["Worker#naps", :stat] => 600, ["Worker#naps", :getpriority] => 840, ["Worker#takes", :readlink] => 360,
      ["Worker#locks", :mkdir] => 240, ["Worker#locks", :stat] => 120, ["Worker#reads", :chmod] => 240,
      ["Worker#reads", :getpriority] => 120, ["Worker#takes_turns", :stat] => 720
    }.merge(RUBY_VERSION < "3.4" ? of_fibers : {}))
    outside = told["rows"].select { |row| row["function"].nil? && kind(row["call"]) == :mkdir }
    expect(outside.sum { |row| row["calls"] }).to be_between(1, 80)
    expect(told["lost"]).to include("unread" => 0, "map_full" => 0)
  end

  it "count events of each function with on EVENT" do
    told, = traced(:USR1, "on", "tracepoint:syscalls:sys_enter_getpriority", "--stack", "2")
    rows = told["rows"].to_h { |row| [[row["function"], row["callers"].first["function"]], row["events"]] }
    expect(rows).to eq(%w[Worker#naps Pool#rounds] => 840, %w[Worker#reads Pool#rounds] => 120)
    expect(told["lost"]).to include("unread" => 0, "map_full" => 0)
  end

  # GIVEN twelve threads that wait for a second without a native thread, and one that waits with it.
  it "charge the idle time of native threads to no function with offcpu" do
    told, said = traced(:USR2, "offcpu")
    off = told["rows"].to_h { |row| [row["function"], row["blocked_ns"] + row["queued_ns"]] }
    { "Worker#keeps" => said["kept"], "Pool#park_for" => said["parked"] }.each do |function, own|
      expect(own).to be > 500_000_000
      expect(off[function]).to be_between(own * 0.9, (own * 1.02) + 2_000_000), "#{function}: #{own} #{off}"
    end
    expect(off.fetch("Worker#parks", 0)).to be < 0.05 * said["parked"]
  end
end
