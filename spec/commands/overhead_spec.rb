# frozen_string_literal: true

require "spec_helper"
require "support/host_helpers"
require "probescope/tracing/descendants"
require "probescope/tracing/info"

# With PROBESCOPE_MAX_OVERHEAD a process takes hooks out by itself. Each answer says which hooks,
# and when.
RSpec.describe "PROBESCOPE_MAX_OVERHEAD", :bpf do
  # A loop calls a method that does nothing. A second method is called once for each USR1. USR2
  # forks a child that calls the first method 500 times.
  ruby = <<~CODE
    class Thing; end
    def trifle; end
    def rare = Thing.new

    def child
      500.times { trifle; sleep 0.002 }
      exit!
    end

    units = 0
    $stdout.sync = true
    trap("USR1") do
      rare
      puts "units=\#{units} cpu=\#{Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)}"
    end
    trap("USR2") { $forks = true }
    puts "ready"
    loop do
      i = 0
      trifle while (i += 1) < 1000
      units += 1
      next unless $forks
      $forks = false
      fork { child }
    end
  CODE
  python = <<~CODE
    import os
    import signal
    import time

    forks = []
    units = 0

    def trifle():
        pass

    def rare():
        print(f"units={units} cpu={time.process_time()}", flush=True)

    def child():
        for _ in range(500):
            trifle()
            time.sleep(0.002)
        os._exit(0)

    signal.signal(signal.SIGUSR1, lambda *_: rare())
    signal.signal(signal.SIGUSR2, lambda *_: forks.append(1))
    print("ready", flush=True)
    while True:
        for _ in range(1000):
            trifle()
        units += 1
        if forks and forks.pop() and os.fork() == 0:
            child()
  CODE

  # Four threads call the hot method. Each calls the rare method once for each USR1. Short-lived
  # threads start and end all the time.
  threads_of_ruby = <<~CODE
    def trifle; end
    def rare = nil

    wanted = Queue.new
    done = Queue.new
    stop = 0
    $stdout.sync = true
    trap("USR1") { stop += 1 }
    4.times do
      Thread.new do
        seen = 0
        loop do
          i = 0
          trifle while (i += 1) < 1000
          next if seen == stop
          seen += 1
          rare
          done << 1
        end
      end
    end
    Thread.new { loop { Thread.new { trifle }.join } }
    puts "ready"
    loop do
      4.times { done.pop }
      puts "units=1"
    end
  CODE
  threads_of_python = <<~CODE
    import queue
    import signal
    import threading
    import time

    done = queue.Queue()
    stop = [0]

    def trifle():
        pass

    def rare():
        pass

    def work():
        seen = 0
        while True:
            for _ in range(1000):
                trifle()
            if seen != stop[0]:
                seen += 1
                rare()
                done.put(1)

    def short_lived():
        while True:
            one = threading.Thread(target=trifle)
            one.start()
            one.join()

    def asked(*_):
        stop[0] += 1

    signal.signal(signal.SIGUSR1, asked)
    for run in [work] * 4 + [short_lived]:
        threading.Thread(target=run, daemon=True).start()
    print("ready", flush=True)
    while True:
        # The main thread must not wait for a lock: a waiting thread does not run its signal
        # handlers when the kernel delivers the signal to another thread.
        for _ in range(4):
            while done.empty():
                time.sleep(0.001)
            done.get()
        print("units=1", flush=True)
  CODE

  around { |example| Dir.mktmpdir { |folder| (@folder = folder) && example.run } }

  def start(suffix, code, limit = "5%")
    path = File.join(@folder, "trifle#{suffix}")
    File.write(path, code)
    target(path, env: {"PROBESCOPE_FUNCTIONS" => "#{@folder}/**", "PROBESCOPE_MAX_OVERHEAD" => limit}).ready
  end

  # Returns the CPU seconds for a unit of work.
  def seconds_a_unit(program)
    first = program.counters
    sleep 1
    last = program.counters
    (last["cpu"] - first["cpu"]) / (last["units"] - first["units"])
  end

  def await_taken_out(program, probe = "function__stats")
    await("hooks of #{probe} that are taken out", within: 60) do
      state, reason = program.info.probes.fetch(probe).values_at(:state, :reason)
      %i[degraded refused].include?(state) && reason.include?("PROBESCOPE_MAX_OVERHEAD=5%")
    end
  end

  # Returns the share of looking in the CPU time, over the next flushes.
  def looking_from_now_on(program)
    memory = File.open("/proc/#{program.pid}/mem", "rb")
    info = Probescope::Tracing::Info.new(memory, program.info.address)
    figures = Array.new(2) do |turn|
      flushes = info.flushes
      await("a flush or two") { info.flushes > flushes + turn }
      info.looking
    end
    looking, cpu = figures.transpose.map { |first, last| last - first }
    looking.fdiv(cpu)
  ensure
    memory&.close
  end

  def ended(running)
    running.signal(:INT)
    expect(running.wait(within: 60)).to be_success, running.err
    JSON.parse(running.out)
  end

  def row(answer, name) = answer["rows"].find { |row| row["function"].end_with?(name) }

  # Starts `calls` and waits until its interval has begun. On a busy machine the last probe, which
  # begins the interval, is attached long after the first.
  def calls(program)
    probescope_start("calls", "-p", program.pid, "-d", 600, "--json").tap do
      await("its last probe", within: 60) { program.info.semaphore("stats__done").positive? }
      flushes = program.info.header[:flushes]
      await("two flushes") { program.info.header[:flushes] >= flushes + 2 }
    end
  end

  # GIVEN a file that is loaded under a tracer, whose methods share one TracePoint, THEN a
  # TracePoint for each method replaces the shared one, and only the hottest method's is taken out.
  # The first method is in two classes, and two methods define others.
  it "takes out a function of a file that was loaded under a tracer" do
    File.write(File.join(@folder, "late.rb"), <<~CODE)
      class Late
        class << self
          def trifle; end
        end
        def self.again = nil
        define_method(:body) { self.class.class_eval { def defined = nil }; defined; rare }
        def rare = inner
        def outer
          define_singleton_method(:made) { nil }
          eval "def self.nested = nil"
          instance_eval { def within = nil }
          within
        end
        def inner
          yield_to { Late.again }
        rescue ArgumentError
          nil
        end
        def yield_to = yield.then { raise(ArgumentError) }
      end
    CODE
    program = start(".rb", <<~CODE)
      $stdout.sync = true
      trap("HUP") { $load = true }
      trap("USR1") { $asked = true }
      puts "ready"
      loop do
        if $load
          load File.join(__dir__, "late.rb")
          $load = false
          $loaded = Late.new
        end
        next sleep(0.01) unless $loaded
        i = 0
        Late.trifle while (i += 1) < 1000
        next unless $asked
        $asked = false
        $loaded.body
        $loaded.outer
        puts "units=1"
      end
    CODE
    running = calls(program)
    program.await_on("function__stats")
    program.signal(:HUP)
    await_taken_out(program)
    expect(looking_from_now_on(program)).to be < 0.05
    15.times { program.counters }
    expect(program.info.state("function__stats")).to eq(:degraded)
    answer = ended(running)
    program.await_off("function__stats")
    expect(row(answer, "Late.trifle")["counted_until"]).to be_between(answer["begin"], answer["end"])
    others = %w[Late#rare Late.again Late#inner Late#yield_to Late#outer Late#defined within].to_h do |name|
      [name, row(answer, name)]
    end
    expect(others.transform_values { |row| row.values_at("calls", "counted_until") })
      .to eq(others.transform_values { [15, nil] })
    expect(others.transform_values { |row| row["raised"] }.select { |_, raised| raised.positive? })
      .to eq("Late#yield_to" => 15)
    expect(answer["lost"].to_h.values.grep(Integer).sum).to eq(0)
  end

  # GIVEN a method of two classes, which has one TracePoint. One of them calls it once, and a
  # collection and calls of many other methods follow, so that this call is in no cache any more.
  it "reports the end of counting for each class that has the function" do
    program = start(".rb", <<~CODE)
      class First
        def shared = nil
      end
      Second = First.dup

      class Others
        NAMES = Array.new(400) { |i| "other\#{i}" }
        NAMES.each { |name| class_eval("def \#{name} = nil", __FILE__, __LINE__) }
        def each = NAMES.each { |name| public_send(name) }
      end

      $stdout.sync = true
      trap("HUP") { $asked = true }
      puts "ready"
      sleep 0.01 until $asked
      Second.new.shared
      GC.start
      Others.new.each
      first = First.new
      puts "called"
      loop { first.shared }
    CODE
    running = calls(program)
    program.await_on("function__stats")
    program.signal(:HUP)
    program.await_line(/\Acalled$/)
    await_taken_out(program)
    looking_from_now_on(program)
    answer = ended(running)
    rows = %w[First#shared Second#shared].to_h { |name| [name, row(answer, name)] }
    expect(rows["First#shared"]["calls"]).to be > 1000
    expect(rows["Second#shared"]["calls"]).to eq(1)
    expect(rows.transform_values { |row| row["counted_until"] })
      .to match(rows.transform_values { be_between(answer["begin"], answer["end"]) })
    expect(row(answer, "Others#other0").values_at("calls", "counted_until")).to eq([1, nil])
  end

  # Calls in other Ractors are not counted, but the hooks run there, too.
  it "holds in a program with Ractors" do
    program = start(".rb", <<~CODE)
      Warning[:experimental] = false
      def trifle; end
      def rare = nil
      $stdout.sync = true
      trap("USR1") { $asked = true }
      other = Ractor.new { loop { 1000.times { trifle }; sleep 0.01 } }
      puts "ready"
      loop do
        i = 0
        trifle while (i += 1) < 1000
        next unless $asked
        $asked = false
        rare
        puts "units=1"
      end
    CODE
    running = calls(program)
    await_taken_out(program)
    looking_from_now_on(program)
    10.times { program.counters }
    answer = ended(running)
    program.await_off("function__stats")
    # Calls in the other Ractor have no row. If functions with rows do not take the time, the whole
    # group of hooks is taken out.
    out = answer["processes"].first["taken_out"].map { |probe| probe["at"] }
    out << row(answer, "trifle")["counted_until"] if out.empty?
    expect(out).to all(be_between(answer["begin"], answer["end"]))
    if answer["processes"].first["taken_out"].empty?
      expect(row(answer, "rare").values_at("calls", "counted_until")).to eq([10, nil])
    end
    expect(program).to be_alive
  end

  {"Ruby" => [".rb", ruby], "Python" => [".py", python]}.each do |language, (suffix, code)|
    context "of #{language}", *(:python if language == "Python") do
      # CPython 3.11 has one hook for all functions.
      one_by_one = language == "Ruby" ||
                   Gem::Version.new(Support::Python.full_version) >= Gem::Version.new("3.12")

      it "takes out the functions that are called most, as long as a tracer listens" do
        skip "of another CPython: 3.12 and later" unless one_by_one
        attempts do
          program = start(suffix, code)
          plain = seconds_a_unit(program)
          2.times do
            running = calls(program)
            await_taken_out(program)
            traced = seconds_a_unit(program)
            expect(looking_from_now_on(program)).to be < 0.05
            18.times { program.counters }
            answer = ended(running)
            program.await_off("function__stats")
            hot, rare = row(answer, "trifle"), row(answer, "rare")
            # While its hooks are in, the ratio is below a half.
            expect(plain / traced).to be > 0.7
            expect(hot["calls"]).to be > 1000
            expect(hot["counted_until"]).to be_between(answer["begin"], answer["end"])
            expect([rare["calls"], rare["counted_until"]]).to eq([20, nil])
            expect(answer["warnings"])
              .to include(/1 function is not counted any more: PROBESCOPE_MAX_OVERHEAD=5%/)
          end
        end
      end

      it "is reported in the table" do
        program = start(suffix, code)
        running = probescope_start("calls", "-p", program.pid, "-d", 600)
        await_taken_out(program)
        running.signal(:INT)
        expect(running.wait(within: 60)).to be_success, running.err
        expect(running.out).to match(/\btrifle \(until \d\d:\d\d:\d\d\.\d{3}\)/)
          .and include("(until TIME): not counted since then")
      end

      it "is reported once beside the lines of stat, when it happens" do
        skip "of another CPython: 3.12 and later" unless one_by_one
        program = start(suffix, code)
        running = probescope_start("stat", "-p", program.pid)
        await_taken_out(program)
        partly = "process #{program.pid} serves function__stats only in part"
        said = /^probescope: #{partly}: 1 function is not counted any more/
        await("what stat says", within: 60) { running.err.match?(said) }
        running.signal(:INT)
        expect(running.wait(within: 60)).to be_success, running.err
        expect(running.err.scan(said).size).to eq(1), running.err
      end

      it "does not take hooks out of a forked child" do
        attempts do
          program = start(suffix, code)
          running = probescope_start("calls", "-p", program.pid, "--workers", "-d", 600, "--by-pid", "--json")
          await_taken_out(program)
          looking_from_now_on(program) # the row is marked before the hooks are out
          program.signal(:USR2)
          child = await("a child") { Probescope::Tracing::Descendants.of(program.pid).first }
          await("the child's end") do
            !File.exist?("/proc/#{child}/exe") || File.read("/proc/#{child}/stat").include?(") Z")
          end
          answer = ended(running)
          counted = answer["rows"].find { |row| row["pid"] == child && row["function"].end_with?("trifle") }
          # The child's hooks come in again while the child runs, and they are not taken out there.
          expect(counted.slice("counted_until")).to eq("counted_until" => nil)
          expect(counted["calls"]).to be_between(1, 500)
        end
      end

      it "takes out a probe that has no functions, and reports the end of its counting" do
        skip "of another CPython: 3.12 and later" if language == "Python" && !one_by_one
        busy = code.gsub("trifle while", "Thing.new while")
                   .gsub("        trifle()\n    units", "        object()\n    units")
        program = start(suffix, busy)
        running = probescope_start("alloc", "-p", program.pid, "-d", 600, "--json")
        await_taken_out(program, "object__stats")
        answer = ended(running)
        ended = {"probe" => "object__stats", "at" => be_between(answer["begin"], answer["end"])}
        expect(answer["processes"].first["taken_out"]).to match([ended])
        expect(answer["rows"].sum { |row| row["count"] }).to be > 1000
        expect(answer["warnings"])
          .to include(/object__stats of process \d+ counts until \S+ alone: taken out for taking too/)
        program.await_off("object__stats")
        expect(program.info.state("object__stats")).to eq(:off)
      end

      # Several threads call, take turns within calls, and end.
      it "takes out a function that threads call, and loses no call of the other functions" do
        skip "of another CPython: 3.12 and later" unless one_by_one
        program = start(suffix, language == "Ruby" ? threads_of_ruby : threads_of_python)
        running = calls(program)
        await_taken_out(program)
        looking_from_now_on(program)
        12.times { program.counters }
        answer = ended(running)
        hot, rare = row(answer, "trifle"), row(answer, "rare")
        expect(hot["counted_until"]).to be_between(answer["begin"], answer["end"])
        expect([rare["calls"], rare["counted_until"]]).to eq([12 * 4, nil])
        program.await_off("function__stats")
        expect(program).to be_alive
      end

      it "that is not a percentage sets no limit, and each answer reports it" do
        program = start(suffix, code, "little")
        result = probescope("calls", "-p", program.pid, "-d", 1, "--json")
        expect(result).to be_success, result.err
        expect(result.json["warnings"])
          .to include(/PROBESCOPE_MAX_OVERHEAD=little is no percentage such as 5%: there is no limit/)
        expect(row(result.json, "trifle")["counted_until"]).to be_nil
      end
    end
  end
end
