# frozen_string_literal: true

require "spec_helper"
require "open3"
require "support/host_helpers"
require "probescope/cli"
require "probescope/tracing/client"
require "probescope/tracing/request"
require "probescope/tracing/tool"

# The part with privilege. Any user may write to it.
RSpec.describe "The helper" do
  def start(env: {}, before: [])
    child = keep(Support::Child.new(*before, *Probescope::Tracing::Client::HELPER,
                                    env: Support.plain_env.merge(env), stdin: true))
    child.await_line(/"ready"/)
    child
  end

  # Returns the answer to a line.
  def answer(helper, line)
    known = helper.out.lines.size
    helper.puts(line.is_a?(Hash) ? JSON.generate(line) : line)
    await("an answer to #{line}", within: 60) do
      helper.out.lines[known]&.end_with?("\n") && JSON.parse(helper.out.lines[known])
    end
  end

  trace = {do: "trace", pids: [1], programs: ["hot"], seconds: 1, keys: 100, pages: 1}

  tracepoint = {kind: "tracepoint", category: "sched", name: "sched_switch"}
  uprobe = {kind: "uprobe", file: "libc.so.6", symbol: "malloc"}
  on = trace.merge(programs: ["on"], event: uprobe)

  refused = {
    "an event of another program" => trace.merge(event: uprobe),
    "an event of two programs" => on.merge(programs: %w[hot on]),
    "no event" => trace.merge(programs: ["on"]),
    "an event as a text" => on.merge(event: "software:cs"),
    "an event of an unknown kind" => on.merge(event: {kind: "kprobe", name: "do_exit"}),
    "an event with a program in it" => on.merge(event: tracepoint.merge(name: "a { system(\"id\"); } BEGIN")),
    "an event with a wildcard" => on.merge(event: tracepoint.merge(name: "sched_*")),
    "two events" => on.merge(event: tracepoint.merge(name: "sched_switch,kprobe:do_exit")),
    "an event with a path" => on.merge(event: tracepoint.merge(category: "../../etc")),
    "a clock as an event" => on.merge(event: {kind: "software", name: "cpu-clock"}),
    "a function with a wildcard" => on.merge(event: uprobe.merge(symbol: "*")),
    "a function with an offset" => on.merge(event: uprobe.merge(symbol: "malloc+8")),
    "a function with an end of line" => on.merge(event: uprobe.merge(symbol: "malloc\n")),
    "a relative path" => on.merge(event: uprobe.merge(file: "../libc.so.6")),
    "a value that is an expression" => on.merge(event: uprobe.merge(sum: "arg0+1")),
    "a value of the stack" => on.merge(event: uprobe.merge(sum: "sarg0")),
    "an event with one more field" => on.merge(event: uprobe.merge(offset: "8")),
    "a path to run" => trace.merge(bpftrace: "/home/x/bpf"),
    "another path to run" => trace.merge(setpriv: "/home/x/setpriv"),
    "a version to believe" => trace.merge(version: [9, 9]),
    "a program by its path" => trace.merge(programs: ["/home/x/evil.bt"]),
    "a program beside its own" => trace.merge(programs: ["../providers/hot"]),
    "a program that does not exist" => trace.merge(programs: ["evil"]),
    "three programs" => trace.merge(programs: %w[hot all gc]),
    "no program" => trace.merge(programs: []),
    "processes by names" => trace.merge(pids: ["1; id"]),
    "a process of a negative number" => trace.merge(pids: [-1]),
    "more processes than it can hold" => trace.merge(pids: (1..501).to_a),
    "a name with a zero in it" => trace.merge(comm: "a\0b"),
    "a name longer than any" => trace.merge(comm: "a" * 300),
    "a name that is none" => trace.merge(comm: ["ruby"]),
    "a truth that is none" => trace.merge(workers: "yes"),
    "arguments that are none" => trace.merge(arguments: [1]),
    "too many arguments" => trace.merge(arguments: %w[1 2 3 4]),
    "a time before now" => trace.merge(seconds: -1),
    "no time" => trace.reject { |name, _| name == :seconds },
    "a time that does not end" => JSON.generate(trace).sub('"seconds":1', '"seconds":1e400'),
    "no share" => trace.merge(max_overhead: 0),
    "more rows than the kernel has memory for" => trace.merge(keys: 1 << 40),
    "strings for which BPF's stack has no room" => trace.merge(strings: 4096),
    "more pages than the kernel has memory for" => trace.merge(pages: 1 << 40),
    "what it does not know" => {do: "exec", command: "id"},
    "nothing" => {},
    "a list" => "[]",
    "no JSON" => "{",
    "no text" => "\xff\xfe",
    "what has no end" => "[" * 1000,
    "a field of nothing that has one" => {do: "list", pid: 1}
  }
  it "refuses unknown and invalid requests, and keeps running" do
    helper = start
    refused.each do |what, line|
      expect(answer(helper, line))
        .to include("is" => "error", "message" => /\Athe helper (knows|takes|refuses)/), what
    end
    expect(answer(helper, do: "inspect", pid: Probescope::Tracing::Request::LARGEST_PID))
      .to include("message" => "there is no process #{Probescope::Tracing::Request::LARGEST_PID}")
    expect(helper.err).to be_empty
  end

  it "refuses a request without an end" do
    helper = start
    writer = Thread.new do
      200.times { helper.puts("a" * 50_000) }
    end
    await("refusals") { helper.out.lines.count { |line| line.include?('"error"') } >= 100 }
    writer.join
    expect(File.read("/proc/#{helper.pid}/status")[/^VmHWM:\s+(\d+)/, 1].to_i).to be < 200_000
  end

  it "accepts every field that a command sends" do
    commands = Probescope::CLI::COMMANDS.keys.map { |name| Probescope::CLI.command(name) }
    traced = commands.select { |one| one < Probescope::Commands::Measuring }
    expect(traced.size).to be > 10
    traced.each do |one|
      command = one.new.tap { |made| made.send(:parse, %w[-p 1 --max-overhead 5%]) }
      command.send(:parse, %w[software:cs]) if one == Probescope::Commands::On
      line = JSON.generate(command.send(:order).fields.merge(do: "trace"))
      expect(Probescope::Tracing::Request.read(line).first).to eq("trace"), line
    end
  end

  describe "as root", :bpf do
    it "has only the capabilities that tracing needs, and so has bpftrace" do
      process = host_target
      helper = start
      helper.puts(JSON.generate(trace.merge(pids: [process.pid], seconds: 60)))
      await("bpftrace", within: 30) { tracers_of(process.pid).any? }
      all = [helper.pid, File.basename(File.dirname(tracers_of(process.pid).first)).to_i]
      all.each do |pid|
        status = File.read("/proc/#{pid}/status").scan(/^(\w+):\s+(.*)$/).to_h
        allowed = Probescope::Tracing::Capabilities.mask(Probescope::Tracing::Capabilities::TRACING)
        expect(status.values_at("CapPrm", "CapEff", "CapBnd", "CapInh").map { |mask| mask.hex & ~allowed })
          .to eq([0, 0, 0, 0])
        expect(status.values_at("NoNewPrivs", "Umask")).to eq(%w[1 0077])
        expect(File.readlink("/proc/#{pid}/cwd")).to eq("/")
      end
      environment = File.read("/proc/#{all.last}/environ").split("\0").map { |pair| pair[/\A\w+/] }
      expect(environment - %w[PATH LANG]).to all(start_with("BPFTRACE_"))
    end

    it "starts no bpftrace for an event that does not exist, and keeps running" do
      process = host_target
      helper = start
      wrong = {tracepoint.merge(name: "sched_none") => "this kernel has no tracepoint sched:sched_none",
               tracepoint.merge(sum: "prev_comm") => "has no integer field prev_comm",
               uprobe.merge(file: "/etc/shadow") => "maps no code of a file /etc/shadow",
               uprobe.merge(file: "/nowhere/at/all") => "maps no code of a file /nowhere/at/all",
               uprobe.merge(file: "$(id)\"\n'") => "maps no code of a file $(id)\"\n'",
               uprobe.merge(symbol: "no_function") => "has no function no_function"}
      wrong.each do |event, why|
        expect(answer(helper, on.merge(pids: [process.pid], event: event)))
          .to include("is" => "error", "message" => a_string_including(why))
      end
      expect(tracers_of(process.pid)).to eq([])
      expect(answer(helper, do: "try")).to eq("is" => "tried", "complaint" => nil)
    end

    it "runs one trace at a time" do
      process = host_target
      helper = start
      2.times { helper.puts(JSON.generate(trace.merge(pids: [process.pid], seconds: 60))) }
      helper.await_line(/"the helper traces already"/)
      expect(tracers_of(process.pid).size).to be <= 1
    end

    # GIVEN Ctrl-Z, which also reaches the helper, WHEN the command is killed, THEN no hook stays.
    it "ends with a command that was stopped and then killed" do
      process = host_target
      helper = start
      helper.puts(JSON.generate(trace.merge(pids: [process.pid], seconds: 600)))
      await("bpftrace", within: 30) { tracers_of(process.pid).any? }
      helper.signal(:TSTP)
      helper.close_stdin
      await("its end") { !helper.alive? && tracers_of(process.pid).empty? }
    end

    # bpftrace accepts options behind the program, too: -cCOMMAND runs a command, -oFILE writes to a
    # file.
    it "passes no argument that bpftrace could take for an option" do
      process = host_target
      Dir.mktmpdir do |folder|
        result = probescope("flow", "-p", process.pid, "-d", 1, "--function", "-o#{folder}/written")
        expect(result.err).to include("was not called in that time")
        expect(Dir.children(folder)).to be_empty
      end
    end

    it "runs no bpftrace of the caller's PATH" do
      process = host_target
      Dir.mktmpdir do |folder|
        seen = File.join(folder, "seen")
        %w[bpftrace setpriv sh env].each do |name|
          File.write(File.join(folder, name), "#!/bin/sh\nid >>#{seen}\nexec /usr/bin/#{name} \"$@\"\n",
                     perm: 0o755)
        end
        result = probescope("hot", "-p", process.pid, "-d", 1,
                            env: {"PATH" => "#{folder}:#{ENV.fetch("PATH")}"})
        expect(result.status.exitstatus).to eq(0), result.err
        expect(File).not_to exist(seen)
      end
    end

    it "checks that a program runs" do
      expect(answer(start, do: "try")).to eq("is" => "tried", "complaint" => nil)
    end
  end
end

RSpec.describe Probescope::Tracing::Tool do
  # A folder that only root may write to, and in it a folder for everybody.
  around do |example|
    next example.run unless Process.uid.zero?

    Dir.mktmpdir(nil, "/root") do |folder|
      @folder = folder
      Dir.mkdir(@open = File.join(folder, "open"))
      File.chmod(0o1777, @open)
      example.run
    end
  end

  def file(name, mode: 0o755, owner: 0)
    File.join(@folder, name).tap do |path|
      File.write(path, "")
      File.chmod(mode, path)
      File.chown(owner, owner, path)
    end
  end

  before { skip "needs root" unless Process.uid.zero? }

  it "accepts a file that only root may change, also through links" do
    expect(described_class.weakness("/bin/sh")).to be_nil
    expect(described_class.weakness("/usr/bin/../bin/./env")).to be_nil
    expect(described_class.weakness(file("tool"))).to be_nil
    File.symlink(file("other"), link = File.join(@folder, "link"))
    expect(described_class.weakness(link)).to be_nil
    expect(described_class.find("sh")).to end_with("/sh")
    expect(described_class.find("no-such-tool")).to be_nil
  end

  it "rejects a path through a folder that others may write to" do
    expect(described_class.weakness(file("open/tool"))).to eq("others than its owner may write to #{@open}")
    File.symlink("/bin", File.join(@open, "bin"))
    File.symlink(File.join(@open, "bin/sh"), link = File.join(@folder, "link"))
    expect(described_class.weakness(link)).to eq("others than its owner may write to #{@open}")
  end

  it "rejects a file of another user, a file that others may write to, and a dangling link" do
    expect(described_class.weakness(file("foreign", owner: 1000)))
      .to eq("#{@folder}/foreign belongs to user 1000")
    expect(described_class.weakness(file("all", mode: 0o757)))
      .to eq("others than its owner may write to #{@folder}/all")
    expect(described_class.weakness(file("group", mode: 0o775)))
      .to eq("others than its owner may write to #{@folder}/group")
    File.symlink("b", File.join(@folder, "a"))
    File.symlink("a", File.join(@folder, "b"))
    expect(described_class.weakness(File.join(@folder, "a"))).to match(/Too many levels/)
    File.symlink("nothing", File.join(@folder, "c"))
    expect(described_class.weakness(File.join(@folder, "c"))).to match(/No such file/)
  end
end
