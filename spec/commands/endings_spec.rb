# frozen_string_literal: true

require "time"
require "spec_helper"
require "support/host_helpers"
require "support/process_trees"

RSpec.describe "The end of a trace", :bpf do
  # Starts a command and waits until it counts.
  def counting(process, *options)
    command = probescope_start("hot", "-p", process.pid, "-d", 600, *options)
    await("the attach", within: 60) { listened_to?(process) && waiting_for_events?(tracers_of(process.pid)) }
    await_flushes(process, 4)
    command
  end

  def waiting_for_events?(tracers)
    tracers.any? && tracers.all? { |path| File.read(path.sub("cmdline", "wchan")).include?("epoll") }
  rescue SystemCallError
    false
  end

  def listened_to?(process) = info_of(process).semaphore("stats__done").positive?

  %i[INT TERM HUP].each do |signal|
    it "comes early with SIG#{signal}, and the command shows the figures so far" do
      process = host_target
      command = counting(process, "--json")
      expect(command.stop(signal).exitstatus).to eq(0)
      expect(JSON.parse(command.out)["rows"].count { |row| !row["outside"] }).to eq(3)
      expect(tracers_of(process.pid)).to be_empty
    end
  end

  # The figures have what the process did between its last flush and the signal.
  it "waits for a flush that begins after the signal" do
    process = target("spec/commands/programs/steady.rb")
    process.await_line(/^ready/)
    command = probescope_start("calls", "-p", process.pid, "-d", 600, "--json")
    await("the attach", within: 60) { process.info.semaphore("stats__done").positive? }
    2.times do
      before = process.info.header[:flushes]
      await("a flush") { process.info.header[:flushes] > before }
    end
    ordered = Time.now.utc
    expect(command.stop(:INT).exitstatus).to eq(0), command.to_s
    expect(Time.iso8601(JSON.parse(command.out)["end"])).to be > ordered
  end

  it "comes early also when the process does not flush any more" do
    process = host_target
    command = counting(process)
    process.signal(:STOP)
    expect(command.stop(:INT).exitstatus).to eq(0)
    expect(command.out).to include("Parser#step2")
  end

  # Runs a command of 1 s while others leave. Returns the seconds of its interval.
  def held_back
    process = target("spec/commands/programs/steady.rb", env: { "PROBESCOPE_FUNCTIONS" => "*/steady.rb" })
    process.await_line(/^ready/)
    command = probescope_start("calls", "-p", process.pid, "-d", 1, "--json")
    await("the attach", within: 60) { process.info.semaphore("stats__done").positive? }
    # Leaves as long as the command runs. The library waits for 3 s at most.
    attacher(process, "object__stats", cycles: 100_000)
    expect(command.wait.exitstatus).to eq(0), command.to_s
    one = JSON.parse(command.out)
    process.signal(:TERM)
    process.wait
    notes = JSON.parse(process.out.lines.last)
    from, to = one["processes"].first.values_at("begin", "end").map do |text|
      (Time.iso8601(text).to_r * 1_000_000_000).to_i
    end
    truth = notes.count { |ns, _| ns.between?(from, to) }
    said = one["rows"].find { |row| row["function"] == "Steady#work" }.fetch("calls")
    expect(said).to be_within(40).of(truth), "said #{said}, in truth #{truth}, in #{(to - from) / 1e9} s"
    (to - from) / 1e9
  end

  # The library holds a flush back while a tracer leaves. A command that did not wait for that flush
  # had no figures. A command of many seconds counted until its bpftrace closed the rows, or its
  # last second had no rows, and its count of losses was 0. On a busy machine the kernel takes so
  # long for an attach that none may leave at the right moment, so up to five commands run.
  it "waits for a flush that is held back while others leave" do
    seconds = (1..5).lazy.map { held_back.tap { stop_processes } }.find { |length| length > 1.5 }
    expect(seconds).to be > 1.5
  end

  it "comes when the process ends, and the command shows the figures until then" do
    process = host_target("--burst", 20, "--flushes", 20)
    command = probescope_start("exceptions", "-p", process.pid, "-d", 600, "--json")
    expect(command.wait.exitstatus).to eq(0)
    expect(JSON.parse(command.out)).to include("seconds" => 20.0)
    expect(JSON.parse(command.out)["rows"].first).to include("count" => 60)
    expect(command.err).to include("process #{process.pid} ended while it was traced")
  end

  it "ends bpftrace when the command is killed with -9" do
    process = host_target
    counting(process).signal(:KILL)
    await("the end of bpftrace") { tracers_of(process.pid).empty? }
    await("the semaphores") { !listened_to?(process) }
  end

  it "ends bpftrace when the helper is killed with -9, and the command reports it" do
    process = host_target
    command = counting(process)
    helper = children_of(command.pid).first
    Process.kill(:KILL, helper)
    await("the end of bpftrace") { tracers_of(process.pid).empty? }
    expect(command.wait.exitstatus).to eq(1)
    expect(command.err).to include("the helper that runs bpftrace ended")
  end

  it "prints no error when the reader of the output has closed it" do
    reader, writer = IO.pipe
    errors, error_writer = IO.pipe
    reader.close
    command = [RbConfig.ruby, Support::EXE, "alloc", "-p", host_target("--burst", 4).pid.to_s, "-d", "1"]
    pid = Process.spawn(*command, out: writer, err: error_writer)
    [writer, error_writer].each(&:close)
    Process.wait(pid)
    expect(errors.read.lines).to all(match(/\Aprobescope: \d+ /))
    expect(tracers_of(pid)).to be_empty
  end
end
