# frozen_string_literal: true

require "spec_helper"
require "etc"
require "support/shared/worker"
require "probescope/cli"
require "probescope/tracing/syscalls"

# The process prints how long each function was off the CPU by its own clocks: the wall time without
# the thread's CPU time. And how often the kernel took its CPU away.
RSpec.describe "offcpu on a Ruby process", :bpf do
  work = <<~'RUBY'
    require "json"
    require "socket"
    LOCK = Mutex.new
    HELD = Queue.new
    ANSWERS = Queue.new

    class Shop
      def naps = 5.times { sleep 0.05 }
      def listens = @reader.readpartial(10)
      def waits_for_a_child = Process.wait(fork { sleep 0.3; exit! })
      def asks = ANSWERS.pop

      def holds
        LOCK.synchronize do
          HELD << true
          sleep 0.4
        end
        sleep 0.01 # Ruby 3.3 and later wakes the other thread when this one gives up the VM lock
      end

      def ships = LOCK.synchronize { 1 }

      def computes
        till = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + 0.6
        1 while Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) < till
      end

      # schedstat lacks the times when the thread is pushed off its CPU just before it blocks.
      def turns = File.read("/proc/thread-self/status").scan(/ctxt_switches:\s*(\d+)/).sum { |(n)| n.to_i }

      def own(name)
        clocks = [Process::CLOCK_MONOTONIC, Process::CLOCK_THREAD_CPUTIME_ID]
        before = clocks.map { |clock| Process.clock_gettime(clock, :nanosecond) }
        began = turns
        yield
        times = turns - began
        wall, cpu = clocks.zip(before).map { |clock, ns| Process.clock_gettime(clock, :nanosecond) - ns }
        $own[name] = [wall - cpu, times]
      end

      def in_threads
        holder = Thread.new { own(:holds) { holds } }
        HELD.pop
        waiter = Thread.new { own(:ships) { ships } } # only the thread with Ruby's timer has no waker
        [holder, waiter].each(&:join)
        Thread.new { sleep 0.2; ANSWERS << 1 }
        own(:asks) { asks }
      end

      def work
        $own = {}
        own(:naps) { naps }
        @reader, writer = UNIXSocket.pair
        Thread.new { sleep 0.3; writer.write("x") }
        own(:listens) { listens }
        own(:waits_for_a_child) { waits_for_a_child }
        in_threads
        own(:computes) { computes }
        puts "own #{JSON.generate($own)}"
      end
    end

    12.times { Thread.new { sleep } } # these have no event at all
  RUBY

  # Requests of two routes at the same time, and a thread outside of requests. They call the same
  # function, which keeps how long its threads were off the CPU and how often they blocked. Ruby calls
  # getrusage() with the VM lock, so it does not wait between the function and its clocks.
  number = Probescope::Tracing::Syscalls::NUMBERS.fetch(Etc.uname[:machine]).key("getrusage")
  requests = "GETRUSAGE = #{number}\n#{<<~'RUBY'}"
    require "json"
    OWN = Hash.new { |all, path| all[path] = [0, 0] }
    NOW = lambda do
      usage = "-" * 144 # Ruby takes no byte 0
      syscall(GETRUSAGE, 1, usage)
      clocks = [Process::CLOCK_MONOTONIC, Process::CLOCK_THREAD_CPUTIME_ID]
      wall, cpu = clocks.map { |clock| Process.clock_gettime(clock, :nanosecond) }
      [wall - cpu, usage.unpack1("@128q")]
    end

    class Shop
      def call(env)
        naps(env["PATH_INFO"], env["PATH_INFO"].start_with?("/slow") ? 0.05 : 0.005)
        [200, {}, []]
      end

      def naps(path, seconds)
        before = NOW.call
        sleep seconds
        OWN[path] = NOW.call.zip(before, OWN[path]).map { |now, earlier, all| all + now - earlier }
      end

      def asks(path)
        body = Probescope::Rack.new(self).call("REQUEST_METHOD" => "GET", "PATH_INFO" => path).last
        body.close if body.respond_to?(:close)
      end

      def work
        [Thread.new { 10.times { |id| asks("/slow/#{id}") } },
         Thread.new { 60.times { |id| asks("/fast/#{id}") } },
         Thread.new { 15.times { naps("", 0.02) } }].each(&:join)
        own = OWN.group_by { |path, _| path[%r{\A/\w+/}].to_s }.transform_values do |all|
          all.map(&:last).transpose.map(&:sum)
        end
        puts "own #{JSON.generate(own)}"
      end
    end
  RUBY

  include_context "with a worker", work

  # Runs the command while the process works once. Returns its JSON, {function => [ns, times]}, the
  # number of threads, and how many switches the program did not see.
  def traced(*options)
    (command,) = started = tracing("offcpu", options)
    work_once(shop)
    own = JSON.parse(shop.out[/^own (.*)$/, 1])
    threads = Dir.children("/proc/#{shop.pid}/task").size
    (told,) = results("offcpu", started)
    @warned = command.err
    missed = command.err[/switches of threads that were not seen: ([\d,]+)/, 1].to_s.delete(",").to_i
    [told, own, threads, missed]
  end

  def row(told, function) = told["rows"].find { |one| one["function"] == "Shop##{function}" }
  def off(row) = row["blocked_ns"] + row["queued_ns"]

  # Within 2 %, and 2 ms for the calls around the function that the process's own clocks include.
  # Where a wake-up ends a thread's turn, the kernel stops the thread's CPU clock at the wake-up, and
  # the program sees the switch, which comes later: on virtual machines 2 to 20 us for each on average.
  def expect_own(told, function, own, missed)
    ns, times = own
    found = row(told, function)
    # Those of `turns`, and one before and after the call, are counted, too, but are in other rows.
    beside = row(told, "turns").to_h.fetch("times", 0) + 2
    expect(found["times"]).to be_between(times - missed - beside, times), "#{function}: #{own} #{found}"
    left_over = missed.zero? ? 0 : [told["left_over_ns"], 0].max
    around = (ns * 0.02) + 2_000_000
    expect(off(found)).to be_between(ns - around - (times * 20_000) - left_over, ns + around),
                          "#{function}: #{own} #{found}"
  end

  def expect_sum(told, warned)
    # Beside a dozen other tracers, the kernel leaves out switches.
    unless warned.include?("the times of the threads do not add up")
      expect(told["left_over_ns"].abs).to be <= told["thread_ns"] * 0.02
    end
    blocked = told["blocked_ns"].values.sum
    expect(told["on_cpu_ns"] + told["queued_ns"] + blocked + told["left_over_ns"]).to eq(told["thread_ns"])
    rows = told["rows"].sum { |one| off(one) }
    expect(rows).to eq(told["queued_ns"] + blocked)
  end

  it "tells the time of each function, its reason, and who ended it; all threads add up" do
    told, own, threads, missed = traced
    own.each { |function, figures| expect_own(told, function, figures, missed) }
    expect_sum(told, @warned)
    # The library's clock of the process. What is left over may be time on the CPU.
    cpu = told["cpu_share"] * told["seconds"] * 1e9
    expect(told["on_cpu_ns"])
      .to be_between((cpu * 0.98) - 20_000_000 - [told["left_over_ns"], 0].max, (cpu * 1.02) + 20_000_000)
    expect(told["threads"]).to be >= threads # Ruby keeps threads that have ended for some seconds
    expect(told["rows"].find { |one| one["function"].nil? }["blocked_ns"])
      .to be >= 12 * told["seconds"] * 0.98 * 1e9
    expect(row(told, "listens")["reasons"].first).to include("reason" => "socket")
    %w[naps asks ships].each do |function|
      expect(row(told, function)["reasons"].first["reason"]).to eq("timer_lock_or_child"), function
    end
    expect(row(told, "ships")["woken_by"].first).to include("function" => "Shop#holds")
    expect(told["not_covered"].join).to include("Ruby #{RUBY_VERSION[/\d+\.\d+/]}")
    expect(told["lost"]).to include("map_full" => 0, "unread" => 0)
    expect(told["reach"]).to eq([Probescope::CLI.command("offcpu")::REACH])
  end

  # The example above has this function, too, mostly with less time in the queue.
  it "tells how long a thread that computes was queued beside another process",
     full: "keeps a CPU busy with another process" do
    expect(system("taskset", "-a", "-c", "-p", "0", shop.pid.to_s, out: File::NULL)).to be(true)
    beside = spawn("taskset", "-c", "0", RbConfig.ruby, "-e", "loop {}")
    told, own, _threads, missed = traced
    computes = row(told, "computes")
    expect(own.fetch("computes").first).to be > 200_000_000 # otherwise nothing else had the CPU
    expect_own(told, "computes", own["computes"], missed)
    expect(computes["queued_ns"]).to be > 0.95 * off(computes)
    expect(computes["reasons"].first["reason"]).to eq("preempted")
    expect_sum(told, @warned)
  ensure
    Process.kill(:KILL, beside) && Process.wait(beside) if beside
  end

  it "tells requests apart, also those of one function on several threads" do
    write_worker(requests)
    told, own, _threads, missed = traced("--by-request")
    naps = told["rows"].select { |one| one["function"] == "Shop#naps" }
    expect(naps.map { |one| one.values_at("method", "route") })
      .to contain_exactly(["GET", "/slow/*"], ["GET", "/fast/*"], [nil, nil])
    naps.each { |one| expect_request(told, one, own.fetch(one["route"].to_s.delete("*")), missed) }
    expect_sum(told, @warned)
    # The main thread, and those of the library and of Ruby.
    outside = told["rows"].select { |one| one["function"].nil? }
    expect(outside.sum { |one| one["route"] ? 0 : off(one) }).to be >= told["seconds"] * 0.98 * 1e9
    expect(told["lost"]).to include("map_full" => 0, "unread" => 0)
  end

  # own: ns off the CPU, and how often the function's thread blocked. Its clocks lack the same times as
  # those of expect_own. A preemption may come just before or after the function reads its clocks.
  def expect_request(told, row, (ns, times), missed)
    blocked = row["reasons"].reject { |one| one["reason"] == "preempted" }
    expect(blocked.sum { |one| one["times"] }).to be_between(times - missed, times), "#{times} #{row}"
    left_over = missed.zero? ? 0 : [told["left_over_ns"], 0].max
    expect(off(row)).to be_between((ns * 0.98) - (row["times"] * 20_000) - left_over, ns * 1.02),
                        "#{ns} #{row}"
  end

  it "ends by itself, and has the wall time of all threads, also of those without an event" do
    threads = Dir.children("/proc/#{shop.pid}/task").size
    command = probescope("offcpu", "-p", shop.pid, "-d", 2, "--json", within: 150)
    expect(command.status.exitstatus).to eq(0), command.err
    told = JSON.parse(command.out)
    expect(told["threads"]).to eq(threads)
    expect(told["thread_ns"]).to be_within(2).percent_of(threads * told["seconds"] * 1e9)
    expect_sum(told, command.err)
  end

  it "prints a table, with the time of all threads above it" do
    told = probescope("offcpu", "-p", shop.pid, "-d", 1, within: 150)
    expect(told.status.exitstatus).to eq(0), told.err
    expect(told.out).to match(/^offcpu of process #{shop.pid}, .*CPU/)
    expect(told.out)
      .to match(/^\d+ threads: .* on the CPU \+ .* queued \+ .* blocked \(.*\) = .* of wall time; /)
    expect(told.out).to include("(no traced function)")
  end

  it "keeps a function that cannot be read apart from waits in no traced function" do
    process = host_target("--rows", 1, "--waits", "--unread", "frames")
    command = probescope("offcpu", "-p", process.pid, "-d", 1, "--json", within: 150)
    expect(command.status.exitstatus).to eq(0), command.err
    told = JSON.parse(command.out)
    expect(told["rows"].map { |one| one["function"] }).to eq([nil, nil])
    calls = told["rows"].map { |one| one["reasons"].map { |reason| reason["call"] } }
    expect(calls.count { |all| all.grep(/poll/).any? }).to eq(1)
    expect(told["lost"]).to include("unread" => be_positive, "map_full" => 0)
  end
end
