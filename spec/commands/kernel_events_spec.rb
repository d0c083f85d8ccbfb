# frozen_string_literal: true

require "spec_helper"
require "support/host_helpers"
require "support/process_trees"
require "support/schemas"
require "time"

# syscalls, offcpu, waits and on, where their counts could go wrong: in containers, in workers that a
# server forks, beside each other, in functions that are open when the tracer comes, and in a crowd of
# idle threads. A process works once for each SIGUSR1, and knows what it does: 100 calls of
# getpriority(2) in Shop#asks and 20 in each of 3 threads, and 4 sleeps of 50 ms in Shop#naps.
RSpec.describe "Commands of the kernel's events", :bpf do
  work = <<~'RUBY'
    $stdout.sync = true
    class Shop
      def ask = Process.getpriority(Process::PRIO_PROCESS, 0)

      def asks = 100.times { Process.getpriority(Process::PRIO_PROCESS, 0) }
      def fails = 7.times { Dir.mkdir("/proc") rescue nil }
      def in_thread = 20.times { Process.getpriority(Process::PRIO_PROCESS, 0) }

      def naps
        before = [Process::CLOCK_MONOTONIC, Process::CLOCK_THREAD_CPUTIME_ID].map { |clock| now(clock) }
        4.times { sleep 0.05 }
        wall, cpu = now(Process::CLOCK_MONOTONIC) - before[0], now(Process::CLOCK_THREAD_CPUTIME_ID) - before[1]
        @off = wall - cpu
      end

      def now(clock) = Process.clock_gettime(clock, :nanosecond)

      def work
        asks
        fails
        3.times.map { Thread.new { in_thread } }.each(&:join)
        naps
        puts "worked #{Process.pid} #{@off}"
      end

      # This call stays open. Calls of functions that it makes are known.
      def serve(open_calls: 0)
        trap("USR1") { $go = true }
        puts "ready"
        loop do
          sleep 0.01
          next unless $go

          $go = false
          open_calls.times { Process.getpriority(Process::PRIO_PROCESS, 0) }
          work
        end
      end
    end
  RUBY

  event = "tracepoint:syscalls:sys_enter_getpriority"
  kinds = [["syscalls"], ["on", event, "--sum", "who"], ["offcpu"], ["waits"]]
  known = {"Shop#asks" => 100, "Shop#in_thread" => 60}

  around { |example| Dir.mktmpdir { |folder| (@folder = folder) && example.run } }

  define_method(:app) do |last|
    File.join(@folder, "app.rb").tap { |path| File.write(path, "#{work}\n#{last}\n") }
  end

  def info_in(pid) = (@infos ||= {})[pid] ||= await("the library in #{pid}") { Support::Info.of(pid) }

  # Starts these commands, and waits until each has its interval.
  def started(commands, *pids, listened: pids)
    running = commands.map do |words|
      probescope_start(*words, *pids.flat_map { |pid| ["-p", pid] }, "-d", 600, "--json")
    end
    running.each { |command| await_interval(command, listened) }
  end

  # A bpftrace that waits for events has attached all its probes. Its interval begins with the next
  # flush.
  def await_interval(command, pids)
    await_attached(command) { bpftraces(command) }
    await_flushes_of(pids, 1)
  end

  # The block returns the command's bpftraces.
  def await_attached(command)
    await("#{command} attached", within: 120) do
      found = yield
      found.any? && found.all? { |pid| File.read("/proc/#{pid}/wchan").include?("epoll") }
    rescue SystemCallError
      false
    end
  end

  def await_flushes_of(pids, number)
    before = pids.to_h { |pid| [pid, info_in(pid).header[:flushes]] }
    await("flushes of #{pids}", within: 60) do
      before.all? { |pid, count| info_in(pid).header[:flushes] >= count + number }
    end
  end

  # Ends the commands and returns their JSON.
  def told(commands)
    commands.map do |command|
      expect(command.stop(:INT, within: 60).exitstatus).to eq(0), command.to_s
      JSON.parse(command.out)
    end
  end

  # {function => figure}
  def by_function(told, figure, pid: nil, call: nil)
    rows = told["rows"].select { |row| (pid.nil? || row["pid"] == pid) && (call.nil? || row["call"] == call) }
    rows.select { |row| row["function"] }.group_by { |row| row["function"] }
        .transform_values { |same| same.sum { |row| row[figure] } }
  end

  define_method(:expect_counts) do |syscalls, on, pid: nil|
    expect(by_function(syscalls, "calls", call: "getpriority", pid: pid)).to eq(known)
    expect(by_function(on, "events", pid: pid)).to eq(known)
    [syscalls, on].each { |one| expect(one["lost"]).to include("unread" => 0, "map_full" => 0) }
  end

  def expect_off(offcpu, off, pid: nil)
    rows = offcpu["rows"].select { |row| row["function"] == "Shop#naps" && (pid.nil? || row["pid"] == pid) }
    expect(rows.sum { |row| row["blocked_ns"] + row["queued_ns"] })
      .to be_within((off * 0.02) + 2_000_000).of(off)
    expect(offcpu["left_over_ns"].abs).to be <= offcpu["thread_ns"] * 0.02
  end

  def expect_waits(waits, off, pid: nil)
    waited = by_function(waits, "blocked_ns", pid: pid)["Shop#naps"]
    expect(waited).to be_between(0.98 * 200_000_000, off)
    expect(by_function(waits, "waits", pid: pid)["Shop#naps"]).to be_between(4, 8) # with the VM lock
  end

  # Each command's answer about a process that has worked once. off: ns that Shop#naps was off the CPU.
  def expect_known((syscalls, on, offcpu, waits), off:, pid: nil)
    expect_counts(syscalls, on, pid: pid)
    expect_off(offcpu, off, pid: pid)
    expect_waits(waits, off, pid: pid)
  end

  define_method(:off) { |line| Integer(line[2]) }

  it "count in a process whose numbers of threads are others than the host's" do
    script = app("Shop.new.serve")
    child = container("exec #{RbConfig.ruby} -r#{Support::AUTO} #{script}")
    pid = inside(child)
    expect(File.read("/proc/#{pid}/status")[/^NSpid:.*/].split.size).to eq(3)
    commands = started(kinds, pid)
    Process.kill(:USR1, pid)
    expect_known(told(commands), off: off(child.await_line(/^worked (\d+) (\d+)$/)))
  end

  # bpftrace 0.17 has the host's numbers there, too, and later versions have the container's. Both are
  # the same in all events that these programs keep threads by.
  it "count the same when they run in the process's container; offcpu is refused there",
     full: "the gate has the same from outside" do
    script = app("Shop.new.serve")
    child = container("exec #{RbConfig.ruby} -r#{Support::AUTO} #{script}")
    pid = inside(child)
    enter = ["nsenter", "--target", pid.to_s, "--mount", "--pid", RbConfig.ruby, Support::EXE]
    refused = keep(Support::Child.new(*enter, "offcpu", "-p", "1", env: Support.command_env))
    expect(refused.wait.exitstatus).to eq(1)
    expect(refused.err)
      .to eq("probescope: the kernel's events have the numbers of threads in the initial PID namespace, " \
             "and this is another one\n  try: run the command on the host\n")
    commands = (kinds - [["offcpu"]]).map do |words|
      outer = keep(Support::Child.new(*enter, *words, "-p", "1", "-d", "600", "--json",
                                      env: Support.command_env))
      command = await("the command in #{outer}") { children_of(outer.pid).first }
      await_attached(outer) { bpftraces(Struct.new(:pid).new(command)) }
      await_flushes_of([pid], 1)
      [outer, command]
    end
    Process.kill(:USR1, pid)
    off = off(child.await_line(/^worked (\d+) (\d+)$/))
    commands.map(&:last).each { |command| Process.kill(:INT, command) }
    syscalls, on, waits = commands.map do |outer, _|
      expect(outer.wait.exitstatus).to eq(0), outer.to_s
      JSON.parse(outer.out)
    end
    expect_counts(syscalls, on)
    expect_waits(waits, off)
  end

  # A worker is forked while the commands run, and one before.
  it "count each worker that a server forks, also with --all" do
    script = app(<<~RUBY)
      puts "ready"
      trap("CHLD", "IGNORE")
      $stdin.each_line { puts "worker \#{fork { Shop.new.serve }}" }
    RUBY
    master = target(script, stdin: true).ready
    first = another_worker(master)
    all = [["syscalls", "--all"], *kinds.drop(1)].map { |words| [*words, "--workers", "--by-pid"] }
    commands = started(all, master.pid, listened: [first])
    second = another_worker(master)
    await("tracers of #{second}", within: 60) { info_in(second).semaphore("function__here").positive? }
    await_flushes_of([second], 3)
    offs = [first, second].to_h do |pid|
      Process.kill(:USR1, pid)
      [pid, off(master.await_line(/^worked (#{pid}) (\d+)$/))]
    end
    answers = told(commands)
    offs.each { |pid, off| expect_known(answers, off: off, pid: pid) }
    answers.each { |one| expect(one["pids"]).to contain_exactly(master.pid, first, second) }
  end

  # The last tracer's interval of one second begins at a random moment of the rounds in which threads
  # tell where their records are. A thread that had not told yet would be counted as `untold`.
  it "count the same for a second tracer, however soon its interval begins, and beside calls" do
    process = target(app(<<~RUBY)).ready
      puts "ready"
      shop = Shop.new
      calls = []
      trap("TERM") { $over = true }
      until $over
        shop.ask
        calls << shop.now(Process::CLOCK_REALTIME)
        sleep 0.002
      end
      puts calls.join(" ")
    RUBY
    first = [*started([["calls"]], process.pid), *started([["on", event]], process.pid)]
    seconds = Array.new(3) { probescope("on", event, "-p", process.pid, "-d", 1, "--json", within: 200) }
    seconds.each { |one| expect(one.status.exitstatus).to eq(0), one.err }
    calls, on = told(first)
    expect(process.stop.exitstatus).to eq(0)
    made = process.out.lines.last.split.map(&:to_i)
    # The program's clock is read after the call. At both ends the process may lose its CPU in between.
    truth = lambda do |one, beyond|
      times = one["processes"].first.values_at("begin", "end")
      from, to = times.map { |time| (Time.iso8601(time).to_r * 1e9).to_i }
      made.count { |ns| ns.between?(from, to) } - 10..made.count { |ns| ns.between?(from, to + beyond) } + 10
    end
    answers = seconds.map { |one| JSON.parse(one.out) }
    answers.each { |one| expect(by_function(one, "events")["Shop#ask"]).to be_between(*truth[one, 0].minmax) }
    expect(by_function(calls, "calls")["Shop#ask"]).to be_between(*truth[calls, 0].minmax)
    # After Ctrl-C, events count until bpftrace has detached: some 0.1 s after the last flush.
    expect(by_function(on, "events")["Shop#ask"]).to be_between(*truth[on, 300_000_000].minmax)
    expect([on, *answers].map { |one| one["lost"]["untold"] }).to all(be <= 1)
  end

  it "have what a function does that was open before the tracer came in no function's row",
     full: "spec/commands/syscalls_spec.rb attaches in the middle of a call, too" do
    process = target(app("Shop.new.serve(open_calls: 7)")).ready
    commands = started(kinds, process.pid)
    process.signal(:USR1)
    off = off(process.await_line(/^worked (\d+) (\d+)$/))
    answers = told(commands)
    expect_known(answers, off: off)
    syscalls, on = answers
    expect(syscalls["rows"].select { |row| row["call"] == "getpriority" && row["function"].nil? }
                           .sum { |row| row["calls"] } + 0).to be_between(0, 7)
    outside = on["rows"].select { |row| row["function"].nil? }
    expect(outside.sum { |row| row["events"] } + on["lost"]["untold"]).to eq(7)
  end

  it "count beside 300 idle threads, whose time adds up" do
    process = target(app("300.times { Thread.new { sleep } }\nShop.new.serve")).ready
    commands = started(kinds, process.pid)
    process.signal(:USR1)
    off = off(process.await_line(/^worked (\d+) (\d+)$/))
    answers = told(commands)
    expect_known(answers, off: off)
    offcpu = answers[2]
    expect(offcpu["threads"]).to be >= 301
    expect(offcpu["thread_ns"]).to be >= 301 * offcpu["seconds"] * 0.98 * 1e9
  end

  # strace stops the process at each call. perf reads the same tracepoints as the commands.
  it "are as many as strace and perf trace count", full: "needs strace and perf" do
    process = target(app("Shop.new.serve")).ready
    commands = started([["syscalls"], ["on", event]], process.pid)
    others = {"strace" => %w[strace -c -f], "perf" => %w[perf trace -s]}
    others.each_key { |name| skip "needs #{name}" unless system(name, "--version", out: File::NULL) }
    running = others.map do |name, words|
      keep(Support::Child.new(*words, "-o", File.join(@folder, name), "-p", process.pid.to_s))
    end
    running.first.await_line(/attached with \d+ threads/, stream: :err)
    await("perf") { File.read("/proc/#{running.last.pid}/wchan").include?("poll") }
    process.signal(:USR1)
    process.await_line(/^worked/)
    running.reverse_each { |one| one.stop(:INT) }
    syscalls, on = told(commands)
    # strace: % time, seconds, usecs/call, calls, errors or nothing, syscall. perf, by thread: syscall,
    # calls, errors, times.
    counts = [/^ *[\d.]+ +[\d.]+ +\d+ +(?<calls>\d+) +(?<errors>\d+ +)?(?<call>\w+)$/,
              /^ +(?<call>\w+) +(?<calls>\d+) +(?<errors>\d+) +[\d.]+ /].zip(others.keys).map do |line, name|
      File.readlines(File.join(@folder, name)).filter_map { |text| text.match(line) }
    end
    by_strace, by_perf = counts.map do |lines|
      lines.group_by { |line| line[:call] }.transform_values do |same|
        %i[calls errors].map { |figure| same.sum { |line| line[figure].to_i } }
      end
    end
    %w[getpriority mkdir mkdirat clone clone3].each do |call|
      rows = syscalls["rows"].select { |row| row["call"] == call }
      said = %w[calls failed].map { |figure| rows.sum { |row| row[figure] } }
      expect([call, said]).to eq([call, by_strace.fetch(call, [0, 0])])
      # perf does not count threads that are made meanwhile.
      rows = rows.reject { |row| row["function"] == "Shop#in_thread" }
      said = %w[calls failed].map { |figure| rows.sum { |row| row[figure] } }
      expect([call, said]).to eq([call, by_perf.fetch(call, [0, 0])])
    end
    expect(by_strace.fetch("getpriority")).to eq([160, 0])
    expect(by_function(on, "events").values.sum).to eq(160)
  end
end
