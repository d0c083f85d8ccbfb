# frozen_string_literal: true

require "pty"
require "spec_helper"
require "support/host_helpers"
require "support/process_trees"
require "support/profiles"

# However a recording ends, what was recorded is in the file (docs/reference/recordings.md). The gem's
# command and the wheel's end alike.
RSpec.describe "The end of a recording", :bpf do
  hosts = %w[gem wheel]
  define_method(:hosts) { hosts }

  around { |example| Dir.mktmpdir { |dir| (@dir = dir) && example.run } }

  def file(name) = File.join(@dir, "#{name}.pb.gz")
  def read(name) = Probescope::Profile::PprofReader.read(file(name))
  def names = Dir.children(@dir).sort

  # [command line, environment] that records into the file.
  def words(host, process, name, *options)
    rest = ["record", "-p", process.pid, "-o", file(name), *options].map(&:to_s)
    return [[RbConfig.ruby, Support::EXE, *rest], Support.command_env] if host == "gem"

    env = Support.plain_env.merge(Support::Python.env(loaded: false))
    [[Support::Python.interpreter, "-m", "probescope", *rest], env]
  end

  def start(host, process, name, *options, by: [])
    command, env = words(host, process, name, *options)
    keep(Support::Child.new(*by, *command, env: env))
  end

  # Starts a command without a Child. to: of Process.spawn.
  def spawn(host, process, name, *options, to: {})
    command, env = words(host, process, name, *options)
    yield(env, *command, unsetenv_others: true, **to)
  end

  # Waits until so many commands have recorded a second of the process.
  def await_recording(process, commands)
    waited = {}
    await("the attach", within: 240) do
      tracers_of(process.pid).each { |path| waited[path] ||= waits_for_events?(path) }
      waited.values.count(true) == commands
    end
    await_flushes(process, 6)
  end

  def waits_for_events?(path)
    File.read(path.sub("cmdline", "wchan")).match?(/epoll|ep_poll/)
  rescue SystemCallError
    false
  end

  def status_of(pid) = Process.wait2(pid).last.then { |status| status.exitstatus || status }

  hosts.each do |host|
    it "by a signal, or with its terminal: #{host}" do
      process = host_target
      signals = %i[INT TERM HUP].to_h { |name| [name, start(host, process, name)] }
      terminals = [[], ["-d", 600]].each_with_index.map do |options, i|
        spawn(host, process, "terminal#{i}", *options) do |env, *command, **rest|
          PTY.spawn(env, *command, **rest)
        end
      end
      unhung = start(host, process, "unhung", by: ["nohup"])
      await_recording(process, 6)
      unhung.signal(:HUP)
      signals.each { |name, command| command.signal(name) }
      terminals.each { |output, input, _| [output, input].each(&:close) }
      signals.each_value do |command|
        expect(command.wait.exitstatus).to eq(0), command.to_s
        expect(command.err).to match(/interrupted after [\d.]+ s/)
      end
      expect(terminals.map { |_, _, pid| status_of(pid) }).to eq([0, 0])
      expect(unhung.alive?).to be(true), unhung.to_s
      expect(unhung.stop(:INT).exitstatus).to eq(0), unhung.to_s
      [*signals.keys, "terminal0", "terminal1", "unhung"].each do |name|
        expect(read(name).metadata).to include(interrupted: true, lost: include(events: 0))
        expect(read(name).total(0).first).to be_positive
      end
      expect(names.size).to eq(6)
      expect(tracers_of(process.pid)).to be_empty
    end
  end

  # Both commands record the process.
  def both(process, *options) = hosts.to_h { |host| [host, start(host, process, host, *options)] }

  # Signals come while the command waits for the flush, for bpftrace, and while it writes.
  it "by Ctrl-C again and again" do
    commands = both(process = host_target("--rows", 50))
    await_recording(process, 2)
    commands.each { |host, command| interrupt_until_written(host, command) }
    expect(names).to eq(%w[gem.pb.gz wheel.pb.gz])
  end

  def interrupt_until_written(host, command)
    await("the file", within: 60, every: 0.001) do
      command.signal(:INT)
      File.exist?(file(host)) || !command.alive?
    end
    status = command.wait
    # Once the file is there, Ctrl-C ends the command as any other.
    expect([0, 130]).to include(status.exitstatus || (status.termsig + 128)), command.to_s
    expect(read(host).metadata).to include(interrupted: true)
  end

  it "while nobody reads what it prints" do
    process = host_target
    reader, writer = IO.pipe
    silent = hosts.map do |host|
      spawn(host, process, host, to: {out: writer, err: writer}) do |env, *command, **rest|
        Process.spawn(env, *command, **rest)
      end
    end
    writer.close
    await_recording(process, 2)
    reader.close
    silent.each { |pid| Process.kill(:INT, pid) }
    expect(silent.map { |pid| status_of(pid) }).to eq([0, 0])
    hosts.each { |host| expect(read(host).total(0).first).to be_positive }
  end

  it "beside a file that has got its name" do
    commands = both(process = host_target)
    await_recording(process, 2)
    hosts.each { |host| File.write(file(host), "theirs") }
    commands.each_value { |command| command.signal(:INT) }
    commands.each do |host, command|
      expect(command.wait.exitstatus).to eq(1), command.to_s
      expect(File.read(file(host))).to eq("theirs")
      kept = command.err[/cannot write .*#{host}\.pb\.gz: File exists; the complete file is (.*\.new)$/, 1]
      expect(Probescope::Profile::PprofReader.read(kept).total(0).first).to be_positive
    end
  end

  # Only the gem has a helper.
  it "by a failure of bpftrace or of the helper" do
    commands = both(killed = host_target)
    helpless = host_target
    commands["helper"] = start("gem", helpless, "helper")
    await_recording(killed, 2)
    await_recording(helpless, 1)
    tracers_of(killed.pid).each { |path| Process.kill(:KILL, path[/\d+/].to_i) }
    Process.kill(:KILL, children_of(commands["helper"].pid).first)
    commands.each do |name, command|
      expect(command.wait.exitstatus).to eq(1), command.to_s
      expect(command.err).to match(/^probescope: .*; .*\.pb\.gz has what was recorded until then$/)
      expect(read(name).total(0).first).to be_positive
    end
  end

  it "with the process" do
    process = host_target
    commands = both(process)
    await_recording(process, 2)
    process.stop(:KILL)
    commands.each do |host, command|
      expect(command.wait.exitstatus).to eq(0), command.to_s
      expect(read(host).metadata).to include(ended: true, interrupted: false)
      expect(command.out).to include(" s; the process ended\n")
      expect(command.err).to include("process #{process.pid} ended while it was traced")
    end
  end

  it "on a full disk" do
    expect(system("mount", "-t", "tmpfs", "-o", "size=64k", "none", @dir)).to be(true)
    File.write(File.join(@dir, "filler"), "x" * 65_000)
    both(host_target, "-d", 1).each do |host, command|
      expect(command.wait.exitstatus).to eq(1), command.to_s
      expect(command.err).to match(/cannot write .*#{host}\.pb\.gz, which needs .*: No space left/)
    end
    expect(names).to eq(["filler"])
  ensure
    system("umount", @dir)
  end
end
