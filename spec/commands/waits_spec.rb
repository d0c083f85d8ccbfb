# frozen_string_literal: true

require "spec_helper"
require "support/host_helpers"
require "support/python"
require "support/schemas"
require "probescope/tracing/descendants"
require "probescope/tracing/line_table"
require "probescope/tracing/program"

# Processes that measure their own waits. They work once for each SIGUSR1, and print their clocks.
RSpec.describe "waits" do
  rounds = 4

  def write(folder, name, text) = File.join(folder, name).tap { |path| File.write(path, text) }

  # Runs the command while the process works once. Returns its JSON, the process's report, and what
  # the command printed on stderr. time: the first, second, ... for this process.
  def traced(process, command, hook, time = 1)
    started = probescope_start(*command.split, "-p", process.pid, "-d", 600, "--json")
    await("bpftrace", within: 60) { tracers_under(started).any? }
    process.await_on(*hook)
    await_interval(started, process)
    process.signal(:USR1)
    truth = JSON.parse(process.await_line(/\Awaited #{time} (.*)$/)[1])
    expect(started.stop(:INT).exitstatus).to eq(0), started.err
    [JSON.parse(started.out), truth, started.err]
  end

  # With bpftrace 0.24 and later, the number of the process is not among bpftrace's arguments.
  def tracers_under(command)
    Probescope::Tracing::Descendants.of(command.pid).select do |pid|
      File.read("/proc/#{pid}/comm") == "bpftrace\n"
    rescue SystemCallError
      false
    end
  end

  def await_interval(command, process)
    await("it is attached", within: 60) do
      tracers_under(command).all? { |pid| File.read("/proc/#{pid}/wchan").include?("epoll") }
    end
    flushes = process.info.header[:flushes]
    await("its interval") { process.info.header[:flushes] >= flushes + 3 }
  end

  def of(told, function, what = nil)
    told["rows"].select { |row| row["function"] == function && (what.nil? || row["what"] == what) }
  end

  def sum(rows, figure) = rows.sum { |row| row[figure] }

  # The waits are in threads, because Ruby's main thread waits in another call.
  ruby = <<~'RUBY'
    require "json"
    $stdout.sync = true
    ROUNDS = Integer(ARGV.first)

    class Shop
      attr_reader :clocks, :switches

      def initialize
        @clocks = {}
        @switches = Hash.new(0)
        @mutex = Mutex.new
        @queue = Queue.new
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
      # How long the thread was ready to run without a CPU.
      def queued = File.read("/proc/thread-self/schedstat").split[1].to_i

      # How often the kernel took the CPU away because the thread was not ready to run.
      def blocked = File.read("/proc/thread-self/status")[/^voluntary_ctxt_switches:\s*(\d+)/, 1].to_i
      def begins = [blocked, queued, now, queued]

      # The time without a CPU is known to be between two figures. Adds up the least and the most
      # that is left without it, and the whole time.
      def took(name, began)
        before, ended, after, switches = queued, now, queued, blocked
        whole = ended - began[2]
        times = [whole - (after - began[1]), whole - (before - began[3]), whole]
        @clocks[name] = times.zip(@clocks.fetch(name, [0, 0, 0])).map(&:sum)
        @switches[name] += switches - began[0]
      end

      def naps
        began = begins
        sleep 0.05
        took("naps", began)
      end

      def locks
        began = begins
        @mutex.synchronize { took("locks", began) }
      end

      def holds(taken)
        @mutex.synchronize do
          taken << 1
          sleep 0.05
        end
      end

      def pops
        began = begins
        @queue.pop
        took("pops", began)
      end

      def puts_one
        sleep 0.05
        @queue << 1
      end

      def one_round
        Thread.new { naps }.join
        taken = Queue.new
        holder = Thread.new { holds(taken) }
        taken.pop
        Thread.new { locks }.join
        holder.join
        [Thread.new { pops }, Thread.new { puts_one }].each(&:join)
      end
    end

    class Main
      def serve
        trap("USR1") { $go = true }
        shop = Shop.new
        puts "ready"
        loop do
          sleep 0.01
          next unless $go

          $go = false
          # Meanwhile the main thread sleeps, in the poll that one thread of Ruby 3.1 has.
          worker = Thread.new { ROUNDS.times { shop.one_round } }
          sleep 0.1 while worker.alive?
          sleep 1.2 # until the waits have names
          puts "waited 1 #{JSON.generate([shop.clocks, shop.switches])}"
        end
      end
    end

    Main.new.serve
  RUBY

  # Threads that take one of two locks. Each method writes down whose wait was ended by which other
  # one: the last that held the lock.
  taker = <<~'RUBY'
    def taker_%<number>d(index)
      unless LOCKS[index].try_lock
        LOCKS[index].lock
        LEDGER << ["Shop#taker_%<number>d", LAST[index]]
      end
      sleep 0.004
      LAST[index] = "Shop#taker_%<number>d"
      LOCKS[index].unlock
    end
  RUBY
  crowd = <<~RUBY
    require "json"
    $stdout.sync = true
    LOCKS = [Mutex.new, Mutex.new]
    LAST = [nil, nil]
    LEDGER = Queue.new

    class Shop
      #{Array.new(6) { |number| format(taker, number: number) }.join}
      def work(number)
        chosen = Random.new(number)
        40.times do
          public_send("taker_\#{number}", chosen.rand(2))
          sleep chosen.rand(0.002..0.01)
        end
      end
    end

    trap("USR1") { $go = true }
    shop = Shop.new
    puts "ready"
    sleep 0.01 until $go
    waiting = Thread.new { 6.times.map { |number| Thread.new { shop.work(number) } }.each(&:join) }
    waiting.join
    sleep 1.2 # until the waits have names
    puts "waited 1 \#{JSON.generate(Array.new(LEDGER.size) { LEDGER.pop })}"
    sleep
  RUBY

  describe "of a Ruby process", :bpf do
    around { |example| Dir.mktmpdir { |folder| (@folder = folder) && example.run } }

    by_process = RUBY_VERSION.between?("3.2", "3.4.99")
    names = {"naps" => "Kernel#sleep", "locks" => "Thread::Mutex#synchronize", "pops" => "Thread::Queue#pop"}
    ended_by = {"naps" => nil, "locks" => "Shop#holds", "pops" => "Shop#puts_one"}

    def shop(source, rounds) = target(write(@folder, "worker.rb", source), rounds.to_s).ready

    it "counts waits of known length, and says who reports them" do
      hook = by_process ? "wait__stats" : "function__here"
      told, (clocks, switches), err = traced(shop(ruby, rounds), "waits", hook)
      expect(told).to fit_the_schema_of("waits")
      expect(told["known_by"]).to eq(by_process ? "process" : "kernel")
      expect(err).to include("the #{told["known_by"]} reports waits")
      expect(told["reach"].empty?).to be(by_process)
      expect(told["not_covered"].grep(/also counted/).empty?).to be(by_process)
      clocks.each do |function, (least, most, whole)|
        rows = of(told, "Shop##{function}", (names.fetch(function) if by_process))
        expect(rows).not_to be_empty, "#{function}: #{told["rows"]}"
        waited = by_process ? sum(rows, "blocked_ns") + sum(rows, "vm_lock_ns") : sum(rows, "blocked_ns")
        # A wait for the VM lock has the wait for a CPU in it, and a wait of the kernel has not.
        expect(waited).to be_between((least * 0.98) - 4_000_000, by_process ? whole : most * 1.02),
                          "#{function}: #{clocks[function]} #{rows}"
        # A thread that is woken takes locks of Ruby's own, the VM lock among them. For the kernel each
        # of them that is not free is one more wait.
        times = switches.fetch(function) unless by_process
        times ||= function == "naps" ? rounds : 2 * rounds
        expect(sum(rows, "waits")).to be_between(rounds, times), rows.to_s
        next unless by_process ? RUBY_VERSION >= "3.3" : true

        by = rows.flat_map { |row| row["holders"] }.max_by { |one| one["blocked_ns"] }
        expect([function, by && by["function"]]).to eq([function, ended_by.fetch(function)])
      end
      lines = told["rows"].map { |row| row["line_is"] }.compact.uniq
      expect(lines).to eq([by_process ? "current" : "definition"])
    end

    if RUBY_VERSION < "3.2" || RUBY_VERSION >= "3.3"
      # The example above has one lock and one holder.
      it "says whose line ended waits for contended locks, in 95 of 100 cases",
         full: "another one of its kind" do
        hook = by_process ? "wait__stats" : "function__here"
        told, ledger = traced(shop(crowd, 0), "waits", hook)
        truth = ledger.tally
        seen = Hash.new(0)
        told["rows"].each do |row|
          row["holders"].each { |one| seen[[row["function"], one["function"]]] += one["waits"] }
        end
        right = truth.sum { |pair, times| [times, seen[pair]].min }
        expect(ledger.size).to be > 20
        expect(right).to be >= 0.95 * ledger.size, "#{right} of #{ledger.size}: #{truth} #{seen}"
      end
    end
  end

  python = <<~'PYTHON'
    import json, signal, sys, threading, time

    ROUNDS = int(sys.argv[1])
    CLOCKS = {}
    LOCK = threading.Lock()

    def took(name, began):
        CLOCKS[name] = CLOCKS.get(name, 0) + time.monotonic_ns() - began

    def naps():
        began = time.monotonic_ns()
        time.sleep(0.05)  # naps
        took("naps", began)

    def locks():
        began = time.monotonic_ns()
        with LOCK:  # locks
            took("locks", began)

    def holds(taken):
        with LOCK:  # holds
            taken.set()
            time.sleep(0.05)

    def burns(ends):
        while time.monotonic() < ends:
            sum(range(1000))

    def computes(ends):
        while time.monotonic() < ends:
            sum(range(1000))

    def work():
        for _ in range(ROUNDS):
            naps()
            taken = threading.Event()
            holder = threading.Thread(target=holds, args=(taken,))
            holder.start()
            taken.wait()
            locks()
            holder.join()
        ends = time.monotonic() + 0.5
        burning = [threading.Thread(target=one, args=(ends,)) for one in (burns, computes)]
        for thread in burning:
            thread.start()
        for thread in burning:
            thread.join()

    def main():
        asked = []
        times = 0
        signal.signal(signal.SIGUSR1, lambda *_: asked.append(True))
        print("ready", flush=True)
        while True:
            time.sleep(0.01)
            if asked:
                asked.clear()
                times += 1
                work()
                print("waited", times, json.dumps(CLOCKS), flush=True)

    main()
  PYTHON

  describe "of a Python process", :bpf, :python do
    around { |example| Dir.mktmpdir { |folder| (@folder = folder) && example.run } }

    def line_of(text, mark) = text.lines.index { |line| line.end_with?("# #{mark}\n") } + 1

    it "has what the kernel tells, with lines, and the GIL by function and by thread" do
      process = target(write(@folder, "worker.py", python), rounds.to_s).ready
      told, clocks, err = traced(process, "waits", "function__here")
      expect(told).to fit_the_schema_of("waits")
      expect(err).to include("the kernel reports waits")
      {"naps" => "sleep", "locks" => "lock"}.each do |function, what|
        (row, *more) = of(told, function, what)
        expect(more).to eq([])
        expect(row).to include("waits" => rounds, "line" => line_of(python, function), "line_is" => "current",
                               "vm_lock_ns" => nil, "blocked_ns" => be_between(1, clocks[function] * 1.02))
      end
      holders = of(told, "locks", "lock").first["holders"]
      by = holders.map { |one| one.values_at("function", "line", "line_is") }
      expect(by).to eq([["holds", line_of(python, "holds"), "current"]])
      # Two threads compute, so one has the GIL while the other waits for it. The main thread has it
      # while it starts and joins them.
      {"burns" => "computes", "computes" => "burns"}.each do |function, other|
        rows = of(told, function, "GIL")
        expect(sum(rows, "blocked_ns")).to be > 100_000_000
        ended = rows.flat_map { |row| row["holders"] }
        expect(ended.map { |one| one["function"] } - [other, "work"]).to eq([]), "#{function}: #{ended}"
        by_other = ended.select { |one| one["function"] == other }
        expect(sum(by_other, "blocked_ns")).to be > 0.8 * sum(ended, "blocked_ns")
      end

      told, = traced(process, "gvl", "function__here", 2)
      expect(told).to fit_the_schema_of("gvl")
      # The main one may be the third.
      expect(told["rows"].count { |row| row["total_ns"] > 50_000_000 }).to be_between(2, 3)
    end
  end

  {"Ruby" => "rb", "Python" => "py"}.each do |language, suffix|
    describe "by request, of a #{language} process", :bpf, *(:python if suffix == "py") do
      program = File.join(Support::ROOT, "spec/commands/programs/waits_by_request.#{suffix}")
      by_process = suffix == "rb" && RUBY_VERSION.between?("3.2", "3.4.99")
      prefix = suffix == "rb" ? "Shop#" : "Shop."

      define_method(:rows_of) do |told, request, function|
        of(told, "#{prefix}#{function}").select { |row| request_of(row) == request }
      end

      def request_of(row) = row.values_at("method", "route").compact.join(" ")

      it "has each wait in the request of its thread, while others wait at the same time" do
        process = target(program, env: {"PROBESCOPE_FUNCTIONS" => "#{File.dirname(program)}/**"}).ready
        hooks = [by_process ? "wait__stats" : "function__here", "stats__by_request"]
        told, truth = traced(process, "waits --by-request", hooks)
        expect(told).to fit_the_schema_of("waits")
        expect(told["known_by"]).to eq(by_process ? "process" : "kernel")
        expect(told["rows"].map { |row| request_of(row) }.uniq).to match_array(truth.keys)
        truth.each do |request, functions|
          functions.each do |function, (times, clock, delayed)|
            rows = rows_of(told, request, function)
            waited = sum(rows, "blocked_ns") + rows.sum { |row| row["vm_lock_ns"] || 0 }
            # Where the process reports waits, they contain the wait for a CPU after a wake-up.
            longest = by_process ? clock : clock - delayed
            expect(waited).to be_between((clock - delayed) * 0.98, longest * 1.02),
                              "#{request} #{function}: #{clock} #{delayed} #{rows}"
            # For the kernel, a thread of Ruby that sleeps also waits for locks of Ruby's own in a futex,
            # and the pipe is nonblocking in the process.
            next if function == (by_process ? "asks" : "naps") && suffix == "rb"

            exact = rows.reject { |row| %w[GIL].include?(row["what"]) || row["call"] == "futex" }
            expect(sum(exact, "waits")).to eq(times), "#{request} #{function}: #{rows}"
          end
        end
        expect(told["lost"]).to include("unread" => 0, "map_full" => 0)
      end
    end
  end

  it "has what the kernel tells of a function that cannot be read as an unknown one", :bpf do
    process = host_target("--rows", 1, "--waits", "--unread", "frames", "--without", "wait__stats")
    run = probescope("waits", "-p", process.pid, "-d", 1, "--json", within: 150)
    expect(run.status.exitstatus).to eq(0), run.err
    told = JSON.parse(run.out)
    expect(told).to fit_the_schema_of("waits")
    expect(told["known_by"]).to eq("kernel")
    # Between two rows, the thread waits in no function.
    expect(told["rows"].map { |row| row["function"] }.uniq).to contain_exactly("(unknown)", nil)
    expect(of(told, "(unknown)").map { |row| row["call"] }).to include(/nanosleep/)
    expect(told["lost"]).to include("unread" => be_positive, "map_full" => 0)
  end

  it "knows by which other program the kernel reports what a runtime does not" do
    program = Probescope::Tracing::Program
    expect(program.by_kernel(%w[waits], "python")).to eq(%w[waits_kernel])
    expect(program.by_kernel(%w[waits], "ruby")).to eq(%w[waits_kernel])
    expect(program.by_kernel(%w[waits_by_request], "ruby")).to eq(%w[waits_kernel_by_request])
    expect(program.by_kernel(%w[gvl], "python")).to eq(%w[gvl_kernel])
    expect(program.by_kernel(%w[gvl], "ruby")).to be_nil
    expect(program.by_kernel(%w[calls all], "python")).to be_nil
    expect(program.names).to include(*program::BY_KERNEL.values.map(&:first))
  end

  # What CPython 3.11 has for `def f(x):` at line 3, with a list in three lines, and `return x`.
  it "reads lines of CPython's line tables, and none from a part of one" do
    table = [0x80 | (15 << 3) | 0, # no location, 1 instruction
             0x80 | (0 << 3) | 1, 0, # line 3, 2 instructions
             0x80 | (11 << 3) | 0, 4, 5, # the next line
             0x80 | (13 << 3) | 2, 0x43, 0x01, # 33 lines back: the number 67 in two bytes
             0x80 | (14 << 3) | 7, 0x44, 0x02, 0, 1, 1].pack("C*") # 66 lines on: 132
    line = ->(offset, bytes = table) { Probescope::Tracing::LineTable.line(bytes, 3, offset) }
    expect([0, 2, 4, 6, 8, 12, 14, 28].map(&line)).to eq([nil, 3, 3, 4, -29, -29, 37, 37])
    expect([-2, 30].map(&line)).to eq([nil, nil])
    expect([line[8, table.byteslice(0, 8)], line[14, table.byteslice(0, 11)], line[0, ""]]).to eq([nil] * 3)
  end
end
