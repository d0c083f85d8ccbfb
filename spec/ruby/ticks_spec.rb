# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/tracing"
require_relative "../../lib/probescope/tracing/ticked_time"

# A timer on each thread's CPU clock sends a signal, and its handler reads the stack. The
# application does not notice the signal.
RSpec.describe "samples at the tick", :bpf do
  before { skip "ticks were not tried on this version of Ruby" unless Support::RUBY_TICKS }

  let(:fields) { { sample__stats: %i[function self total self_samples] } }

  # The common part of these programs.
  def common
    headers = RbConfig::CONFIG.values_at("rubyhdrdir", "rubyarchhdrdir").map { |path| "-I#{path}" }
    directory = FileUtils.mkdir_p(File.join(Support::ROOT, "tmp", "ruby-#{RUBY_VERSION}")).first
    library = File.join(directory, "ticks.so")
    source = File.join(Support::ROOT, "spec/support/ticks.c")
    tool("cc", "-shared", "-fPIC", "-O2", "-D_GNU_SOURCE", *headers, "-o", library, source, "-lpthread")
    <<~RUBY
      require #{library.dump}
      require "zlib"
      require "digest"
      def cpu = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID, :nanosecond)
      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      def spin(n = 20_000) = (i = 0; i += 1 while i < n)
      TEXT = "x" * 1_000_000
      # The CPU time of this process by the kernel's ticks.
      TICKED = (~0 << 3) | #{Probescope::Tracing::TickedTime::TICKED}
    RUBY
  end

  let(:told) { Hash.new(0) }
  let(:used) { Hash.new(0) }

  # Expects each share within this many points of the program's own clocks, which leave out other
  # work. Runs of one example are added up: one run has some 800 samples, and by chance alone a row
  # deviates by 5 points now and then. A share may be wrong by the part of the CPU time that no tick
  # met, which `hot` tells (decision 200): ticked has the CPU time that ticks met.
  def expect_shares(run, points)
    run.totals(:sample__stats).each { |name, row| told[name] += row[:self] }
    run.report.each { |name, ns| used[name] += ns }
    samples, whole = told.values.sum.to_f, used.fetch(:whole).to_f
    missed = used.key?(:ticked) ? [1 - (used[:ticked] / whole), 0].max : 0
    used.except(:whole, :ticked).each do |name, ns|
      expect(told["Object##{name}"] / samples).to be_within(points + missed).of(ns / whole),
                                                  "#{name}: #{told}, in truth #{used}"
    end
  end

  it "charge time in C to its calling method" do
    attempts do
      run = trace(common + <<~RUBY, fields)
        def sum = Zlib.crc32(TEXT)
        def trivial(x) = x
        Gate.on :sample__stats
        Gate.flushed(1)
        clock = Hash.new(0)
        began = cpu
        # The duration is CPU time, so a busy machine gives as many samples. With 210 samples,
        # chance alone deviates by 5 points in one run of seven.
        while (d = cpu) < began + 8_000_000_000
          a = d; sum; b = cpu; trivial(1); c = cpu; spin; d = cpu
          clock[:sum] += b - a; clock[:trivial] += c - b; clock[:spin] += d - c
        end
        Gate.done clock.merge(whole: cpu - began)
      RUBY
      expect_shares(run, 0.05)
    end
  end

  it "name the builtin, for each method that called it" do
    builtins = { sample__stats: %i[function self total self_samples total_samples builtin] }
    rows = trace(common + <<~RUBY, builtins).events(:sample__stats)
      def sum = Zlib.crc32(TEXT)
      def digest = (Digest::SHA256.digest(TEXT); Zlib.crc32(TEXT))
      Gate.on :sample__stats
      Gate.flushed(1)
      # The duration is CPU time, so a busy machine gives as many samples.
      ends = cpu + 4_000_000_000
      while cpu < ends
        sum
        digest
        spin
      end
      Gate.done
    RUBY
    rows.reject! { |row| row[:self_samples].zero? }
    whole = rows.group_by { |row| row[:function] }
    whole = whole.transform_values { |own| own.sum { |row| row[:self] }.to_f }
    named = rows.reject { |row| row[:builtin].empty? }
    expect(named).to all(include(total: 0, total_samples: 0))
    parts = named.group_by { |row| row.values_at(:function, :builtin) }
    parts = parts.transform_values { |own| own.sum { |row| row[:self] } }
    expect(parts.fetch(["Object#sum", "Zlib.crc32"])).to be > 0.8 * whole["Object#sum"]
    both = parts.select { |(function, _), _| function == "Object#digest" }.transform_keys(&:last)
    expect(both.keys.size).to be >= 2
    expect(both.values.sum).to be > 0.8 * whole["Object#digest"]
    expect(parts.keys.map(&:first)).not_to include("Object#spin")
  end

  it "charge the jobs of a pool, with and without the VM lock" do
    attempts do
      run = trace(common + <<~RUBY, fields)
        SMALL = TEXT[0, 200_000]
        def digest = Digest::SHA256.digest(SMALL)
        def stat = 100.times { File.stat("/") }
        def sum = Zlib.crc32(SMALL)
        JOBS = %i[digest stat sum spin]
        clocks = Array.new(4) { Hash.new(0) }
        Gate.on :sample__stats
        Gate.flushed(1)
        queue = Thread::SizedQueue.new(8)
        began = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :nanosecond)
        workers = clocks.map do |clock|
          Thread.new do
            while (job = queue.pop)
              before = cpu
              send(job)
              clock[job] += cpu - before
            end
          end
        end
        ticked = Process.clock_gettime(TICKED, :nanosecond)
        whole = -> { Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :nanosecond) - began }
        i = 0
        # The duration is CPU time, so a busy machine gives as many samples.
        queue << JOBS[(i += 1) % JOBS.size] while whole.call < 8_000_000_000
        4.times { queue << nil }
        workers.each(&:join)
        whole = whole.call
        ticked = Process.clock_gettime(TICKED, :nanosecond) - ticked
        Gate.done JOBS.to_h { |job| [job, clocks.sum { |clock| clock[job] }] }.merge(whole: whole, ticked: ticked)
      RUBY
      expect_shares(run, 0.05)
    end
  end

  # The kernel looks at CPU clocks only some 250 times a second. When a timer ran 1 ms and more from
  # the beginning of its thread, threads of 1 ms had no sample.
  it "give threads that end within a tick their share", full: "measures for minutes beside other tests" do
    attempts do
      run = trace(common + <<~RUBY, fields)
        def first = spin(20_000)
        def second = (i = 0; i += 1 while i < 40_000)
        def own = (i = 0; i += 1 while i < 100_000)
        def timed(clock, name)
          before = cpu
          send(name)
          clock[name] += cpu - before
        end
        clock = Hash.new(0)
        Gate.on :sample__stats
        Gate.flushed(1)
        whole = -> { Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :nanosecond) }
        began, ticked = whole.call, Process.clock_gettime(TICKED, :nanosecond)
        while whole.call < began + 6_000_000_000
          8.times { Thread.new { timed(clock, :first); timed(clock, :second) }.join }
          timed(clock, :own)
        end
        # `spin` has the self time of `first`. `first` has it with YJIT, as limits.md says: on a
        # new thread's stack, Ruby does not see the innermost frame of compiled code.
        compiled = defined?(RubyVM::YJIT) && RubyVM::YJIT.enabled?
        clock[:spin] = clock.delete(:first) unless compiled
        ticked = Process.clock_gettime(TICKED, :nanosecond) - ticked
        Gate.done clock.merge(whole: whole.call - began, ticked: ticked)
      RUBY
      expect_shares(run, 0.08)
    end
  end

  it "charge the code of fibers, and give collections their own row" do
    attempts do
      run = trace(common + <<~RUBY, fields)
        def short = Fiber.new { spin(200) }.resume
        def many = 2_000.times { short }
        def garbage = Array.new(50_000) { Object.new }
        Gate.on :sample__stats
        Gate.flushed(1)
        ends = now + 6
        (many; garbage) while now < ends
        Gate.done
      RUBY
      rows = run.totals(:sample__stats)
      expect(rows.keys).to include("Object#spin", "(garbage collection)")
      callers = rows.fetch("Object#garbage")[:total] + rows.fetch("Object#many")[:total]
      expect(rows["(garbage collection)"][:self]).to be <= callers
    end
  end

  it "interrupt no system call, and end no wait early" do
    run = trace(common + <<~RUBY, fields)
      Gate.on :sample__stats
      Gate.flushed(1)
      Gate.done Ticks.waits(3_000).merge(signal: Ticks.signal)
    RUBY
    expect(run.report).to include(interrupted: 0, short: 0)
    expect(run.report[:signal]).to eq(Signal.list["URG"])
    expect(run.totals(:sample__stats).sum { |_, row| row[:self_samples] }).to be > 50
  end

  it "continue in a forked child, and do not change children, exec, traps and timeouts" do
    run = trace(common + <<~RUBY, fields)
      require "rbconfig"
      require "timeout"
      require "fileutils"
      Gate.on :sample__stats
      Gate.flushed(1)
      child = fork { spin(2_000_000); exit!(5) }
      statuses = [Process.wait2(child).last.exitstatus]
      ends = now + 3
      while now < ends
        statuses << (system("true") ? 0 : 1)
        spin(100_000)
      end
      pending = fork { Ticks.exec_with_pending(RbConfig.ruby, "-v") }
      statuses << Process.wait2(pending).last.then { |status| status.exitstatus || -status.termsig }
      late = begin
        Timeout.timeout(0.2) { spin(1_000) while true }
      rescue Timeout::Error
        :late
      end
      Gate.done statuses: statuses.uniq, late: late
    RUBY
    expect(run.report).to eq(statuses: [5, 0], late: "late")
  end

  it "stop in an application that traps their signal" do
    run = trace(common + <<~RUBY, fields)
      def state = Probescope.status[:probes][:sample__stats]
      Gate.on :sample__stats
      Gate.flushed(1)
      seen = Ticks.signal
      trapped = 0
      trap(seen) { trapped += 1 }
      spin until state.first == :degraded
      before = trapped
      Process.kill(seen, Process.pid)
      spin(1_000) until trapped > before
      Gate.flushed(1)
      ends = cpu + 1_500_000_000
      spin while cpu < ends
      Gate.done seen: seen, trapped: trapped, before: before, state: state
    RUBY
    # Until the watcher checks the handler, each tick sends a signal. It checks twenty times a
    # second if it gets a CPU.
    expect(run.report).to include(seen: Signal.list["URG"], trapped: run.report[:before] + 1)
    expect(run.report[:before]).to be <= 99
    expect(run.report[:state].last).to eq("charged at the next check: the application handles SIGURG")
    expect(run.totals(:sample__stats).fetch("Object#spin")[:self_samples]).to be > 30
  end

  it "are not taken if the application has trapped their signal before" do
    run = trace(common + <<~RUBY, fields)
      trapped = 0
      trap("URG") { trapped += 1 }
      Gate.on :sample__stats
      Gate.flushed(1)
      ends = cpu + 1_000_000_000
      spin while cpu < ends
      before = trapped
      Process.kill("URG", Process.pid)
      spin(1_000) until trapped > before
      Gate.flushed(1)
      Gate.done before: before, trapped: trapped, state: Probescope.status[:probes][:sample__stats]
    RUBY
    expect(run.report).to include(before: 0, trapped: 1)
    expect(run.report[:state].first(2))
      .to eq(["degraded", "charged at the next check: the application handles SIGURG"])
    expect(run.totals(:sample__stats).fetch("Object#spin")[:self_samples]).to be > 10
  end

  it "do not take another profiler's signals or the application's alarms" do
    # For a second of CPU time at a load of 13, the kernel sends 63 to 104 signals, with and without
    # a tracer.
    attempts do
      run = trace(common + <<~RUBY, fields)
        alarms = 0
        trap("ALRM") { alarms += 1 }
        def profile = Ticks.profile(4)
        plain = profile
        Gate.on :sample__stats
        Gate.flushed(1)
        Ticks.alarm(1)
        sampled = profile
        spin until alarms.positive?
        Gate.flushed(1)
        Gate.done plain: plain, sampled: sampled, alarms: alarms
      RUBY
      expect(run.report[:alarms]).to eq(1)
      expect(run.report[:sampled]).to be_within(0.2 * run.report[:plain]).of(run.report[:plain])
      expect(run.totals(:sample__stats).fetch("Object#profile")[:self_samples]).to be > 240
    end
  end

  it "end nothing when all signals are reset, or the process calls exec" do
    run = trace(common + <<~RUBY, fields)
      Gate.on :sample__stats
      Gate.flushed(1)
      child = fork do
        spin(2_000_000)
        (1..64).each { |number| trap(number, "DEFAULT") rescue nil }
        spin(2_000_000)
        exec("true")
      end
      Gate.done status: Process.wait2(child).last.then { |status| status.exitstatus || -status.termsig }
    RUBY
    expect(run.report).to eq(status: 0)
  end

  # Counts the signals that the kernel delivered to a process. Several pending ones are one.
  def deliveries(pid)
    text = "BEGIN { printf(\"ready\\n\"); } " \
           "tracepoint:signal:signal_deliver /pid == #{pid} && args->sig == #{Signal.list["URG"]}/ " \
           "{ @delivered = count(); }"
    keep(Support::Tracer.new(text)).tap { |tracer| tracer.await_line(/^ready/) }
  end

  # STORM_SECONDS=60 runs it for longer, by hand.
  it "survive 100,000 signals a second, with threads that end in each way, fibers, forks, " \
     "compaction, exceptions and exits" do
    seconds = Float(ENV.fetch("STORM_SECONDS", "10"))
    every = { sample__stats: %i[function self], sample__frame: %i[function], sample: %i[weight] }
    run = start(common + <<~RUBY, every)
      GC.auto_compact = true if GC.respond_to?(:auto_compact=)
      Gate.on :sample__stats, :sample
      Gate.open :storm
      began = now
      Ticks.storm(1_000_000)
      raised = 0
      ends = now + #{seconds}
      while now < ends
        threads = 4.times.map do |i|
          Thread.new do
            50.times { Fiber.new { Fiber.new { spin(50) }.resume }.resume }
            Digest::SHA256.digest(TEXT)
            raise "no" if i == 3
          rescue RuntimeError
            raised += 1
          end
        end
        threads << Thread.new { Array.new(20_000) { |i| i.to_s } }
        threads << Thread.new { Thread.current.report_on_exception = false; spin(50); raise "no more" }
        threads << Thread.new { spin while true }.tap { |thread| Thread.pass; thread.kill }
        Process.wait(fork { spin(1_000); exit!(0) })
        GC.compact if rand(5).zero?
        def deep(n) = n.zero? ? spin(10) : deep(n - 1)
        deep(500)
        begin
          (endless = -> { endless.call }).call
        rescue SystemStackError
          raised += 1
        end
        threads.each do |thread|
          thread.join
        rescue RuntimeError
          raised += 1
        end
      end
      Gate.done sent: Ticks.calm, raised: raised, took: now - began
    RUBY
    kernel = deliveries(run.target.pid)
    run.open(:storm)
    run.finish(within: 180 + (10 * seconds))
    delivered = Integer(kernel.finish[/@delivered: (\d+)/, 1])
    text = "#{delivered} of #{run.report[:sent]} signals in #{run.report[:took].round} s"
    RSpec.configuration.reporter.message(text)
    expect(delivered).to be > 5_000
    expect(run.report[:raised]).to be > 2
    expect(run.target.err).not_to include("[BUG]")
  end

  # Runs under a seccomp filter with this answer to timer_create(). Returns the state of the
  # samples, its reason, and their number.
  def in_sandbox(action, env = {})
    run = trace(common + <<~RUBY, fields, env: env)
      Ticks.sandbox(Ticks::#{action})
      Gate.on :sample__stats
      Gate.flushed(1)
      ends = cpu + 500_000_000
      spin while cpu < ends
      Gate.flushed(1)
      Gate.done state: Probescope.status[:probes][:sample__stats]
    RUBY
    [*run.report[:state].first(2), run.totals(:sample__stats).fetch("Object#spin")[:self_samples]]
  end

  it "are taken at checks under a filter that may end the process, and by timer if the user says " \
     "that it does not" do
    state, reason, samples = in_sandbox(:KILL)
    expect([state, reason]).to match(["degraded", /\Acharged at the next check: a seccomp filter may end/])
    expect(samples).to be > 10
    tells = {"PROBESCOPE_SECCOMP" => "errno"}
    expect(in_sandbox(:ALLOW, tells)).to match(["on", nil, be > 10])
    state, reason, samples = in_sandbox(:ERROR, tells)
    expect([state, reason]).to match(["degraded", /\Acharged at the next check: the kernel gives no timers/])
    expect(samples).to be > 10
  end

  it "are reported as charged at the next check if no timer takes them" do
    run = start("Gate.on :stats__done\nloop { sleep 0.01 }", fields,
                env: { "PROBESCOPE_SAMPLES" => "checks", "GATE_ALSO" => "" })
    run.target.await_on("sample__stats")
    expect(run.target.info.state("sample__stats")).to be(:degraded)
    expect(run.target.info.probes.fetch("sample__stats")[:reason]).to start_with("charged at the next check")
  end
end
