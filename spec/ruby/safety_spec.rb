# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/opentelemetry"
require_relative "support/tracing"

RSpec.describe "an application that is traced" do
  # An example that attaches "every probe" attaches these. A new probe belongs to them if it has a hook
  # of its own, else to one of the reasons below.
  all = %w[function__stats function__here exception__stats exception__detail backtrace__done object__stats
           sample__stats gc__done gvl__wait wait__stats stats__done]
  left_out = {
    "one of those has in the same hooks" => %w[function__slow1ms function__slow10ms function__slow100ms
                                               gc__start sample sample__frame],
    "is attached by the last examples" => %w[stack__frame stack__cpu],
    "fires so often that the examples would take minutes" => %w[function__entry function__return line
                                                                exception__raise exception__rescue
                                                                object__alloc],
    "has no hooks of its own" => %w[request__start request__done functions__all stats__by_request status]
  }

  # Starts a program and attaches every probe with the attacher in C, which can attach again and
  # again at no cost.
  def traced(source, probes, cycles: nil, **options)
    target, directory = program(source, **options)
    tracer = attacher(target, *probes, cycles: cycles, wait: false)
    tracer.attached unless cycles
    [target, tracer, directory]
  end

  def report(target, within: 120)
    JSON.parse(target.await_line(/\Areport (.*)/, within: within)[1], symbolize_names: true)
  end

  gate = "Gate.on :function__stats, :exception__stats, :exception__detail, :object__stats, :sample__stats\n"
  interrupted = <<~RUBY
    require "timeout"
    class Hooked
      def spin = loop { step }
      def step = [1].each { |n| fail_softly if n.zero?; work(n) }
      # A busy loop would keep the VM lock for 100 ms each time.
      def work(n) = (Thread.pass if ($turn += 1) % 61 == 0) || n.to_s.dup
      def fail_softly = (raise("soft") rescue nil)
    end
    COUNT = Integer(ENV.fetch("COUNT", 1000))
    def timeouts
      COUNT.times.count do
        begin
          Timeout.timeout(0.001) { Hooked.new.spin }
          false
        rescue Timeout::Error => e
          $traces |= e.backtrace.grep(%r{lib/probescope|Probescope})
          true
        end
      end
    end
    def raises
      COUNT.times.count do
        thread = Thread.new do
          Hooked.new.spin
        rescue IOError => e
          $traces |= e.backtrace.grep(%r{lib/probescope|Probescope})
          e.message
        end
        Thread.pass until thread.stop? || thread.backtrace.to_a.size > 2
        thread.raise(IOError, "told")
        thread.value == "told"
      end
    end
    def kills
      COUNT.times.count do
        tidy = false
        thread = Thread.new { begin; Hooked.new.spin; ensure; tidy = true; end }
        Thread.pass until thread.backtrace.to_a.size > 2
        thread.kill
        thread.join && tidy
      end
    end
    $traces = []
    $turn = 0
  RUBY
  deliver = "Gate.done timeouts: timeouts, raises: raises, kills: kills, traces: $traces\n"

  it "is traced by every probe, except those that are left out for a reason" do
    expect(all + left_out.values.flatten).to match_array(Probescope::ABI::PROBES.keys.map(&:to_s))
  end

  it "gets every Timeout, Thread#raise and Thread#kill, and has no frame of probescope in a " \
     "backtrace", :bpf do
    target, = traced("#{interrupted}#{gate}#{deliver}", all)
    expect(report(target)).to eq(timeouts: 1000, raises: 1000, kills: 1000, traces: [])
    expect(target.err).to be_empty
  end

  # Every call is slow, so each end reads the trace context while an interrupt arrives.
  it "gets them, SIGINT and exceptions of traps, while slow calls read the trace context", :bpf do
    target, = traced(<<~RUBY, %w[function__slow1ms exception__detail], options: OpenTelemetryGems.options)
      require "opentelemetry/sdk"
      #{interrupted}
      TRACER = OpenTelemetry::SDK::Trace::TracerProvider.new.tracer("spec")
      class Hooked
        alias spin_on spin
        def spin = TRACER.in_span("spin") { @since = now; spin_on }
        def now = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)
        # Yields to other threads in the last of a chain of calls that are all slow by now.
        def work(n) = (slow?($turn += 1) ? ($slow = true; Thread.pass) : n.to_s)
        def slow?(turn) = turn % 16 == 0 && now - @since > 1000
      end
      # Yields COUNT times, after the spinning call has become slow, and counts the arrivals.
      def signalled(signal, error)
        killer = Thread.new do
          loop do
            Thread.stop
            Thread.pass until $slow
            Process.kill(signal, Process.pid)
          end
        end
        COUNT.times.count do
          $slow = false
          Thread.pass until killer.stop?
          killer.wakeup
          Hooked.new.spin
        rescue error => e
          $traces |= e.backtrace.grep(%r{lib/probescope|Probescope})
          true
        end
      ensure
        killer.kill
      end
      trap("USR1") { raise IOError, "trapped" }
      Gate.on :function__slow1ms, :exception__detail
      Gate.done timeouts: timeouts, raises: raises, kills: kills, interrupts: signalled(:INT, Interrupt),
                trapped: signalled(:USR1, IOError), traces: $traces
    RUBY
    expect(report(target)).to eq(timeouts: 1000, raises: 1000, kills: 1000, interrupts: 1000,
                                 trapped: 1000, traces: [])
    expect(target.err).to be_empty
  end

  it "gets them all while tracers attach and detach and files are loaded", :bpf do
    target, = traced(<<~RUBY, all, cycles: 100_000, env: { "COUNT" => "300" })
      #{interrupted}
      Thread.new do
        loop { eval("def evaluated = 1", TOPLEVEL_BINDING.dup, "\#{__dir__}/view.rb", 1); sleep 0.001 }
      end
      $VERBOSE = nil
      #{deliver}
    RUBY
    expect(report(target)).to eq(timeouts: 300, raises: 300, kills: 300, traces: [])
    expect(target.err).to be_empty
  end

  it "gets its signals: SIGINT as Interrupt and traps", :bpf do
    target, = traced(<<~RUBY, all)
      class Hooked
        def work = loop { [1].map { |n| (raise "soft" rescue n.to_s) } }
      end
      #{gate}
      trapped = interrupted = 0
      trap("USR1") { trapped += 1 }
      parent = fork do
        trap("USR1", "IGNORE")
        100.times { Process.kill(:USR1, Process.ppid); sleep 0.005 }
        exit!(0)
      end
      Hooked.new.work if false
      waiter = Thread.new { Process.wait(parent) }
      until waiter.join(0); 50.times { (raise "soft" rescue 1) }; end
      50.times do
        killer = Thread.new { Process.kill(:INT, Process.pid) }
        begin
          Hooked.new.work
        rescue Interrupt
          interrupted += 1
        end
        killer.join
      end
      Gate.done trapped: trapped, interrupted: interrupted
    RUBY
    result = report(target)
    # Equal signals that are pending together are one signal.
    expect(result[:interrupted]).to eq(50)
    expect(result[:trapped]).to be > 50
    expect(target.err).to be_empty
  end

  it "is traced again in a forked child, which ends as it would without probescope", :bpf do
    target, directory = program(<<~RUBY, options: ["-w"])
      class Child
        def work = 1
      end
      at_exit { $stdout.puts "at exit in \#{$parent == Process.pid ? "parent" : "child"}"; $stdout.flush }
      $parent = Process.pid
      child = fork do
        puts "child \#{Process.pid}"
        $stdout.flush
        Gate.on :function__stats, :stats__done
        3.times { Child.new.work }
        Gate.flushed
        exit 7
      end
      Process.wait(child)
      codes = [$?.exitstatus]
      codes << fork { exit!(9) }.then { Process.wait(_1); $?.exitstatus }
      codes << fork { $stderr.reopen(File::NULL); abort "no" }.then { Process.wait(_1); $?.exitstatus }
      codes << fork { Process.kill(:KILL, Process.pid) }.then { Process.wait(_1); $?.termsig }
      codes << `exit 3`.then { $?.exitstatus }
      puts "codes \#{codes.inspect}"
      $stdout.flush
      exit 5
    RUBY
    child = Integer(target.await_line(/\Achild (\d+)/)[1])
    text = Tracing.text({ stats__done: %i[sequence rows dropped], function__stats: %i[function calls] })
    run = Tracing::Run.new(target, tracer(text, pid: child),
                           directory, { function__stats: %i[function calls] })
    expect(target.wait.exitstatus).to eq(5)
    await("the rows of the child") { run.totals(:function__stats)["Child#work"] }
    expect(run.totals(:function__stats)["Child#work"]).to eq(calls: 3)
    expect(target.out.lines.map(&:chomp).drop(1))
      .to eq(["at exit in child", "at exit in child", "codes [7, 9, 1, 9, 3]", "at exit in parent"])
    expect(target.err).to be_empty
  end

  # The CPU time of a child begins at 0.
  it "begins an interval of its own in a forked child", :bpf do
    target, directory = program(<<~RUBY)
      Gate.open "traced"
      Gate.on :stats__done
      Gate.flushed(1)
      nil while Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) < 1
      forked = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
      child = fork { Gate.flushed(1) }
      Process.wait(child)
      Gate.done child: child, lived: Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - forked
    RUBY
    done = "usdt:#{Support::LIBRARY}:probescope:stats__done"
    seen = tracer(%(#{done} { printf("%d %llu %llu\\n", pid, arg1, arg2); }))
    seen.attached(target, "stats__done")
    FileUtils.touch(File.join(directory, "traced"))
    child, lived = report(target).values_at(:child, :lived)
    intervals = seen.finish.scan(/^#{child} (\d+) (\d+)$/).map { |pair| pair.map(&:to_i) }
    expect(intervals.size).to be >= 2
    expect(intervals.sum(&:first)).to be <= lived
    expect(intervals.sum(&:last)).to be <= lived
  end

  it "forks 500 times under a tracer: each child is traced too, and all processes end normally", :bpf do
    target, _, directory = traced(<<~RUBY, all - %w[function__stats function__here exception__stats])
      class Forker
        def work(n) = n.zero? ? 0 : work(n - 1)
        def fail = (raise KeyError rescue 1)
      end
      Gate.open "traced"
      #{gate}
      Gate.flushed(1)
      codes = Array.new(125) do
        pids = Array.new(4) { |n| fork { 20.times { Forker.new.work(4); Forker.new.fail }; exit(n) } }
        10.times { Forker.new.work(4) }
        pids.map { |pid| Process.wait2(pid)[1].exitstatus }
      end
      Gate.flushed
      Gate.done codes: codes.flatten.tally
    RUBY
    # This tracer attaches by the library's path, so it traces all the processes.
    library = Support::LIBRARY
    seen = tracer(<<~BPFTRACE)
      usdt:#{library}:probescope:function__stats /str(arg0) == "Forker#work"/ { @calls[pid] = sum(arg3); }
      usdt:#{library}:probescope:exception__stats /str(arg0) == "KeyError"/ { @raised[pid] = sum(arg3); }
    BPFTRACE
    seen.attached(target, "function__stats", "exception__stats")
    FileUtils.touch(File.join(directory, "traced"))
    expect(report(target)[:codes]).to eq("0": 125, "1": 125, "2": 125, "3": 125)
    out = seen.finish
    calls, raised = %w[calls raised].map do |map|
      out.scan(/^@#{map}\[(\d+)\]: (\d+)/).to_h { |pair| pair.map(&:to_i) }
    end
    expect(calls.delete(target.pid)).to eq(125 * 10 * 5)
    # Process ids are reused.
    expect([calls, raised].map { |counts| counts.values.sum }).to eq([500 * 100, 500 * 20])
    expect(calls.values.map { |count| count % 100 }.uniq).to eq([0])
    expect(calls.size).to be > 250
    expect(target.err).to be_empty
  end

  it "becomes a daemon and is traced there", :bpf do
    target, directory = program(<<~RUBY)
      class Daemon
        def work = 1
      end
      Process.daemon(true, true)
      File.write(File.join(ENV.fetch("GATE_DIRECTORY"), "pid"), Process.pid)
      Gate.on :function__stats
      10.times { Daemon.new.work }
      Gate.flushed(3)
    RUBY
    target.wait
    path = File.join(directory, "pid")
    await("the daemon") { File.size?(path) }
    daemon = Integer(File.read(path))
    seen = tracer(Tracing.text({ function__stats: %i[function calls] }), pid: daemon)
    await("its calls in\n#{seen}") { seen.out.include?("Daemon#work\t10") }
    expect(target.err).to be_empty
  ensure
    Process.kill(:KILL, daemon) if daemon # not a child of this process, so nothing else would end it
  end

  { "every allocation" => "GC.stress = true",
    "compaction" => "GC.auto_compact = true; Thread.new { loop { GC.compact } }" }.each do |name, setting|
    it "survives a collection at #{name} with every probe attached", :bpf do
      events = %w[object__alloc gc__start exception__raise function__entry function__return sample
                  sample__frame stack__frame stack__cpu]
      target, = traced(<<~RUBY, [*all, *events])
        class Stressed
          def work(n) = n.zero? ? fails : work(n - 1)
          def fails = (raise(ArgumentError, "no \#{1}") rescue $!.message)
          def define(n) = Class.new { define_method(:"made\#{n}") { 1 } }.new.public_send(:"made\#{n}")
        end
        #{gate}
        #{setting}
        stress = GC.stress
        loop do
          3.times { |n| Stressed.new.work(3); Stressed.new.define(n) }
          GC.stress = false # status makes hundreds of objects
          break if Probescope.status[:flushes] > 3
          GC.stress = stress
        end
        GC.start
        Gate.done
      RUBY
      # Beside 27 busy processes it took more than the usual 120 s.
      report(target, within: 300)
      expect(target).to be_alive
      expect(target.err).to be_empty
    end
  end

  it "runs Ractors, of which the main one is counted", :bpf do
    fields = { function__stats: %i[function calls], exception__stats: %i[type raised],
               object__stats: %i[class allocated] }
    run = start(<<~RUBY, fields)
      $VERBOSE = nil
      Warning[:experimental] = false
      class Side
        def work(n) = n.zero? ? 0 : work(n - 1)
        def fails = (raise ArgumentError rescue 1)
      end
      Gate.on :function__stats, :exception__stats, :object__stats
      ractors = Array.new(2) { Ractor.new { 2000.times { Side.new.work(3); Side.new.fails }; :done } }
      1000.times { Side.new.work(3); Side.new.fails }
      Gate.done done: ractors.map { |r| r.respond_to?(:value) ? r.value : r.take }
    RUBY
    run.finish
    expect(run.report[:done]).to eq(%w[done done])
    expect(run.totals(:function__stats)["Side#work"][:calls]).to eq(4000)
    expect(run.totals(:exception__stats)["ArgumentError"][:raised]).to eq(1000)
    expect(run.target.err).to be_empty
    # Before 3.1.4 and from 4.0 on, Ractors with allocation hooks crash Ruby itself:
    # ext/ruby/ractors.c.
    version = Gem::Version.new(RUBY_VERSION)
    state = version.between?(Gem::Version.new("3.1.4"), Gem::Version.new("4")) ? :off : :refused
    run.target.await_off("function__stats")
    expect(run.target.info.state("object__stats")).to eq(state).or eq(:off)
  end

  # Ruby before 3.1.4 starts a Ractor's thread without a stack for frames: ext/ruby/ractors.c.
  it "creates Ractors while a thread is inside a TracePoint's block, which prevents Ruby from " \
     "removing hooks", :bpf do
    run = start(<<~RUBY, { object__stats: %i[class allocated], gc__done: %i[kind] })
      Warning[:experimental] = false
      Gate.on :object__stats, :gc__done
      inside, go_on = Thread::Queue.new, Thread::Queue.new
      def hooked = 1
      trace = TracePoint.new(:call) { |call| inside << go_on.pop if call.method_id == :hooked }
      thread = Thread.new { trace.enable { hooked } }
      Thread.pass until go_on.num_waiting == 1
      ractors = Array.new(3) { Ractor.new { 1 } }
      go_on << 1
      thread.join
      Gate.done done: ractors.sum { |ractor| ractor.respond_to?(:value) ? ractor.value : ractor.take }
    RUBY
    run.finish
    expect(run.report[:done]).to eq(3)
    expect(run.target.err).to be_empty
  end

  { gc__done: %i[kind],
    sample__stats: %i[function self],
    exception__stats: %i[type raised] }.each do |probe, fields|
    it "creates Ractors whose first object begins a collection, with #{probe} on", :bpf do
      run = start(<<~RUBY, { probe => fields })
        Warning[:experimental] = false
        Gate.on :#{probe}
        200.times { raise ArgumentError rescue 1 }
        GC.stress = true
        ractors = Array.new(3) { Ractor.new { 1 } }
        GC.stress = false
        Gate.done done: ractors.sum { |ractor| ractor.respond_to?(:value) ? ractor.value : ractor.take },
                  state: Probescope.status[:probes][:#{probe}].first
      RUBY
      run.finish
      expect(run.report[:done]).to eq(3)
      expect(run.target.err).to be_empty
      if RUBY_VERSION.match?(/\A3\.1\.[0-3]\z/)
        expect(run.report[:state]).to eq(probe == :gc__done ? "refused" : "degraded")
      end
    end
  end

  it "may freeze its threads", :bpf do
    target, = traced(<<~RUBY, all)
      class Cold
        def work = (raise "x" rescue 1)
      end
      #{gate}
      Thread.new { Thread.current.freeze; 100.times { Cold.new.work } }.join
      Thread.current.freeze
      100.times { Cold.new.work }
      Gate.done
    RUBY
    report(target)
    expect(target.err).to be_empty
  end

  it "still gets the error for a deadlock", :bpf do
    target, = traced(<<~RUBY, all)
      #{gate}
      begin
        Thread.stop
      rescue Exception => e
        stopped = e.class.name
      end
      begin
        Thread.new { Thread.stop }.join
      rescue Exception => e
        joined = e.class.name
      end
      Gate.done stopped: stopped, joined: joined
    RUBY
    # Thread.stop raises ThreadError in the only thread.
    expect(report(target)).to eq(stopped: "ThreadError", joined: "fatal")
  end

  it "gets no output, no thread and no warning from probescope" do
    target, = program(<<~RUBY, options: ["-w", "-W:deprecated", "-W:experimental"])
      Gate.done threads: Thread.list.size, version: Probescope::VERSION
    RUBY
    expect(report(target)[:threads]).to eq(1)
    expect(target.err).to be_empty
    expect(target.out.lines.size).to eq(1)
  end

  it "has no socket, file or child of probescope, with everything attached", :bpf do
    target, = traced(<<~RUBY, all)
      #{gate}
      opened = Dir.children("/proc/self/fd")
      opened = opened.filter_map { |fd| File.readlink("/proc/self/fd/\#{fd}") rescue nil }
      Gate.done opened: opened, children: File.read("/proc/self/task/\#{Process.pid}/children")
    RUBY
    said = report(target)
    expect(said[:opened].grep(/socket:|probescope|memfd/)).to eq([])
    expect(said[:children]).to eq("")
  end

  it "may call install, uninstall and status as often as it likes", :bpf do
    target, = program(<<~RUBY)
      answers = [Probescope.install, Probescope.install, Probescope.status[:installed],
                 Probescope.uninstall, Probescope.uninstall, Probescope.status[:installed],
                 Probescope.install, Probescope.status[:installed]]
      Gate.on :function__stats
      answers << Probescope.uninstall << Gate.state(:function__stats)
      100.times { Probescope.install; Probescope.uninstall }
      Probescope.install
      Gate.on :function__stats
      Gate.done answers: answers
    RUBY
    attacher(target, "function__stats", wait: false)
    expect(report(target)[:answers]).to eq([true, true, true, true, false, false, true, true, true, "off"])
    expect(target.err).to be_empty
  end

  # The watcher may check the semaphores, and request a switch, while install still runs.
  it "gets hooks for a tracer that listens already, whenever it installs", :bpf do
    target, = program(<<~RUBY)
      Gate.on :function__stats
      150.times do
        Probescope.uninstall
        Probescope.install
        Gate.on :function__stats # blocks for ever if the first check was missed
      end
      Gate.done
    RUBY
    attacher(target, "function__stats", wait: false)
    report(target)
    expect(target.err).to be_empty
  end

  describe "with too little memory for its places" do
    # object__stats is left out: its rows may fill the memory before the methods are hooked. Of 304 KiB,
    # these take about 270 in Ruby 3.1.
    fields = { exception__stats: %i[type file line raised], function__stats: %i[function calls],
               stats__done: %i[sequence rows dropped] }

    it "shows the rest as one (overflow) row, counts it, and loses no event", :bpf do
      run = trace(<<~RUBY, fields, env: { "PROBESCOPE_MEMORY" => "304K" })
        class Many
          1500.times { |n| class_eval "def m\#{n} = 1" , __FILE__, n }
        end
        sites = Array.new(5000) do |n|
          eval("-> { begin; raise(ArgumentError); rescue ArgumentError; end }", nil,
               "\#{__dir__}/site\#{n}.rb", n)
        end
        Gate.on :function__stats, :exception__stats, :stats__done
        many = Many.new
        2.times { 1500.times { |n| many.public_send(:"m\#{n}") } }
        2.times { sites.each(&:call) }
        Gate.flushed
        Gate.done Probescope.status.slice(:memory_used, :memory_limit, :rows_dropped)
      RUBY
      report = run.report
      expect(report[:memory_limit]).to eq(304 << 10)
      expect(report[:memory_used]).to be <= report[:memory_limit]
      expect(run.totals(:exception__stats).sum { |_, row| row[:raised] }).to eq(10_000)
      expect(run.totals(:exception__stats)["(overflow)"][:raised]).to be_positive
      expect(run.totals(:function__stats)["(overflow)"][:calls]).to be_positive
      many = run.totals(:function__stats).select { |name, _| name.start_with?("Many#", "(overflow)") }
      expect(many.sum { |_, row| row[:calls] }).to be >= 3000
      overflowed = [run.totals(:exception__stats)["(overflow)"][:raised],
                    run.totals(:function__stats)["(overflow)"][:calls]].sum
      expect(report[:rows_dropped]).to be >= overflowed
      expect(run.events(:stats__done).sum { |event| event[:dropped] }).to be >= overflowed
    end

    it "reports functions that have no hook", :bpf do
      target, = program(<<~RUBY, env: { "PROBESCOPE_MEMORY" => "128K" })
        class Many
          8000.times { |n| class_eval "def m\#{n} = 1" , __FILE__, n }
        end
        Gate.open "never"
      RUBY
      attacher(target, "function__stats", wait: false)
      await("the reason") do
        target.info.probes["function__stats"] in { state: :degraded, reason: /PROBESCOPE_MEMORY/ }
      end
    end
  end
end
