# frozen_string_literal: true

require "spec_helper"
require "support/host_helpers"
require "probescope/tracing/info"

# The cost of looking that a command reports.
RSpec.describe "What looking cost", :bpf do
  # A loop calls a method that does nothing. Under `calls`, the hooks take most of the CPU time.
  ruby = <<~CODE
    def trifle; end

    units = 0
    $stdout.sync = true
    trap("USR1") { puts "units=\#{units} cpu=\#{Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)}" }
    puts "ready"
    loop do
      i = 0
      trifle while (i += 1) < 1000
      units += 1
    end
  CODE
  python = <<~CODE
    import signal
    import time

    def trifle():
        pass

    units = 0
    signal.signal(signal.SIGUSR1, lambda *_: print(f"units={units} cpu={time.process_time()}", flush=True))
    print("ready", flush=True)
    while True:
        for _ in range(1000):
            trifle()
        units += 1
  CODE

  around { |example| Dir.mktmpdir { |folder| (@folder = folder) && example.run } }

  def start(suffix, code)
    path = File.join(@folder, "trifle#{suffix}")
    File.write(path, code)
    target(path, env: {"PROBESCOPE_FUNCTIONS" => "#{@folder}/**"}).ready
  end

  # Returns the CPU seconds for a unit of work while the block runs.
  def seconds_a_unit(program)
    first = program.counters
    yield
    last = program.counters
    (last["cpu"] - first["cpu"]) / (last["units"] - first["units"])
  end

  # Waits for this number of flushes. Returns [CPU ns of looking, CPU ns of the process] so far.
  def looked(program, flushes)
    before = program.info.header[:flushes]
    await("#{flushes} flushes") { program.info.header[:flushes] >= before + flushes }
    memory = File.open("/proc/#{program.pid}/mem", "rb")
    Probescope::Tracing::Info.new(memory, program.info.address).looking
  ensure
    memory&.close
  end

  # GIVEN a program that raised for a while, THEN the hooks that measure raises are out again, even
  # when few of its backtraces were freed.
  it "is next to nothing under `exceptions` while a program allocates and does not raise" do
    program = start(".rb", <<~CODE)
      class Thing; end
      def cause = raise(ArgumentError)
      kept = []
      $stdout.sync = true
      trap("USR1") { $raise = true }
      puts "ready"
      loop do
        1000.times { Thing.new }
        next unless $raise
        $raise = false
        100.times { cause rescue kept << $! }
        puts "units=0 cpu=0"
      end
    CODE
    running = probescope_start("exceptions", "-p", program.pid, "-d", 600, "--json")
    program.await_on("exception__stats")
    shares = Array.new(2) do |turn|
      program.counters if turn == 1
      before = looked(program, 3) # afterwards the hooks are out
      looked(program, 2).zip(before).map { |now, then_| now - then_ }.reduce(:fdiv)
    end
    running.signal(:INT)
    expect(running.wait(within: 60)).to be_success, running.err
    expect(shares).to all(be < 0.03)
  end

  {"Ruby" => [".rb", ruby], "Python" => [".py", python]}.each do |language, (suffix, code)|
    context "of #{language}", *(:python if language == "Python") do
      it "is the additional part of the CPU time of the same work" do
        attempts do
          program = start(suffix, code)
          plain = seconds_a_unit(program) { sleep 1 }
          running = probescope_start("calls", "-p", program.pid, "-d", 3, "--json")
          program.await_on("function__stats")
          traced = seconds_a_unit(program) { sleep 2 }
          expect(running.wait(within: 60)).to be_success, running.err
          said = JSON.parse(running.out).fetch("looking_share")
          expect(said).to be_within(0.15).of((traced - plain) / traced)
        end
      end

      it "ends the trace early when it exceeds --max-overhead, and the command shows the figures so far" do
        program = start(suffix, code)
        result = probescope("calls", "-p", program.pid, "-d", 600, "--json", "--max-overhead", "5%",
                            within: 120)
        expect(result).to be_success, result.err
        expect(result.err).to match(
          /ended after \d+\.\d s: looking took \d+\.\d % of the CPU time, more than --max-overhead 5%/
        )
        expect(result.json["looking_share"]).to be > 0.05
        expect(result.json["rows"].map { |row| row["calls"] }.sum).to be > 1000
        program.await_off("function__stats")
      end
    end
  end

  it "is the figure of the process, in the table, in JSON and for each process" do
    pids = Array.new(2) { host_target.pid }
    options = pids.flat_map { |pid| ["-p", pid] }
    answer = probescope("calls", *options, "-d", 1, "--json").json
    expect([answer, *answer["processes"]].map { |part| part["looking_share"] }).to eq([0.05] * 3)
    expect(probescope("calls", *options, "-d", 1).out).to match(/CPU, 5\.0 % of it for looking$/)
    lines = probescope("stat", "-p", pids.first, "-d", 1, "--json").out.lines.map { |line| JSON.parse(line) }
    expect(lines.map { |line| line["looking_share"] }.uniq).to eq([0.05])
  end

  it "has a limit that is a percentage" do
    result = probescope("calls", "-p", Process.pid, "--max-overhead", "little")
    expect(result.status.exitstatus).to eq(2)
    expect(result.err).to include("--max-overhead takes a percentage above 0")
  end
end
