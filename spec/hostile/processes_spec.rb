# frozen_string_literal: true

require "spec_helper"
require "hostile/files"
require "support/host_helpers"
require "support/process_trees"
require "probescope/tracing/bpftrace_process"
require "probescope/tracing/descendants"
require "probescope/tracing/elf"
require "probescope/tracing/opened"
require "probescope/tracing/order"
require "probescope/tracing/reader"

# GIVEN processes that lie, hang or cost much, WHEN commands read all of them, THEN each command
# ends in time, reports them, and shows the others.
RSpec.describe "Hostile processes", :bpf do
  hostile = Support::Hostile

  # CPU seconds of the processes that this one has waited for, and of theirs.
  def cpu_of_children = Process.times.then { |times| times.cutime + times.cstime }

  # Runs `probescope ps --json`, and measures its time, its CPU time and its memory.
  def ps
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    before = cpu_of_children
    child = probescope_start("ps", "--json")
    @memory = 0
    while child.alive?
      @memory = [@memory, memory_of(child.pid)].max
      sleep 0.05
    end
    @seconds = Process.clock_gettime(Process::CLOCK_MONOTONIC) - began
    expect(child.wait).to be_success, child.to_s
    @cpu = cpu_of_children - before
    expect(child.err).not_to match(/\.rb:\d/)
    JSON.parse(child.out)
  end

  # Returns the memory of a process and its children in bytes.
  def memory_of(pid)
    [pid, *Probescope::Tracing::Descendants.of(pid)].sum do |one|
      File.read("/proc/#{one}/smaps_rollup")[/^Pss:\s+(\d+)/, 1].to_i << 10
    rescue SystemCallError
      0
    end
  end

  def pids = ps["rows"].map { |row| row["pid"] }

  # ps must show the honest process. Returns what it reports of the other one.
  def said_of(pid)
    honest = host_target
    found = ps
    rows = found["rows"].map { |row| row["pid"] }
    expect(rows).to include(honest.pid)
    found["warnings"].find { |text| text.include?("process #{pid}:") } || (:listed if rows.include?(pid))
  end

  # Each command on that process must end with a reason and a next step, in gem and wheel.
  def refused(pid, reason)
    [["hot", "-p", pid, "-d", 1], ["status", "-p", pid],
     ["calls", "-p", pid, "-p", host_target.pid, "-d", 1]].each do |words|
      result = probescope(*words)
      expect(result.err).to match(reason)
      expect(result.err).not_to match(/\.rb:\d|helper that runs bpftrace ended/)
    end
    result = wheel("status", "-p", pid)
    expect(result.err).to match(reason)
    expect(result.err).not_to include("Traceback")
  end

  # Runs the command of the Python package.
  def wheel(*arguments)
    child = keep(Support::Child.new(Support::Python.interpreter, "-m", "probescope", *arguments.map(&:to_s),
                                    env: Support.plain_env.merge(Support::Python.env(loaded: false))))
    status = child.wait(within: 30)
    Support::Processes::Result.new(status: status, out: child.out, err: child.err)
  end

  describe "whose probescope_info is not at the reported address", :python do
    {"at the end of the address space" => 0xffffffff00000000, "where nothing is mapped" => 0x5000_0000,
     "before it" => -hostile::AT - 8}.each do |where, symbol|
      rest = {full: "another address"} unless where == "before it"
      it "is #{where}: it is refused, and the others are listed", **rest.to_h do
        process = hostile(hostile.elf(symbol: symbol))
        expect(said_of(process.pid)).to match(/it has no memory at|it tells of/)
        refused(process.pid, /it has no memory at|it tells of/)
      end
    end

    it "is something else, or never complete" do
      expect(said_of(hostile(hostile.elf(hostile.info(magic: "OTHER"))).pid)).to include("is not one")
      process = hostile(hostile.elf(hostile.info(sequence: 5)))
      expect(said_of(process.pid)).to include("does not finish writing")
      refused(process.pid, /does not finish writing/)
    end

    it "reports more than is possible" do
      expect(said_of(hostile(hostile.elf(hostile.info(count: 1 << 20))).pid))
        .to include("tells of 1048576 probes")
      expect(said_of(hostile(hostile.elf(hostile.info(offset: 0xffffffff))).pid))
        .to include("it has no memory at")
    end

    it "has semaphores at the end of the address space" do
      probes = %w[stats__done sample__stats function__stats].map { |name| [name, 1, 1, (1 << 64) - 1, ""] }
      process = hostile(hostile.elf(hostile.info(probes)))
      expect(said_of(process.pid)).to eq(:listed)
      expect(probescope("hot", "-p", process.pid, "-d", 1).err)
        .to include("it tells of 2 bytes at 0xffffffffffffffff")
      expect(wheel("status", "-p", process.pid).out).to match(/stats__done +on +\?/)
    end
  end

  it "have names that are not valid text: gem and wheel show them", :python do
    copy = File.join(hostile_folder, "odd\xff\e[31m")
    FileUtils.cp(Support::HostTarget.binary, copy)
    process = host_target("--rows", 2, binary: copy)
    expect(pids).to include(process.pid)
    expect(probescope("status", "-p", process.pid, "--json").json.dig("process", "path"))
      .to include("odd\u{fffd}")
    expect(wheel("status", "-p", process.pid, "--json").json.dig("process", "path")).to include("odd\u{fffd}")
    expect(probescope("hot", "-p", process.pid, "-d", 1)).to be_success
  end

  describe "whose mapped files are no longer regular files" do
    # Runs without the capability for map_files, as in a container.
    def without_map_files = %w[setpriv --bounding-set=-sys_admin,-checkpoint_restore,-bpf,-perfmon]

    def ps_by_path
      child = keep(Support::Child.new(*without_map_files, RbConfig.ruby, Support::EXE, "ps", "--json",
                                      env: Support.command_env))
      expect(child.wait(within: 20)).to be_success, child.to_s
      JSON.parse(child.out)["rows"].map { |row| row["pid"] }
    end

    it "are FIFOs, or links, without map_files: no command waits, and no link is followed" do
      fifo = hostile(hostile.elf, "--become", "fifo")
      honest = host_target
      other = hostile_file(hostile.elf)
      link = hostile(hostile.elf, "--become", other)
      found = ps_by_path
      expect(found).to include(honest.pid)
      expect(found & [fifo.pid, link.pid]).to be_empty
    end

    it "are refused by the kernel's own rules" do
      path = hostile_file("text")
      File.symlink(path, "#{path}.link")
      Dir.mkdir("#{path}.folder")
      File.symlink("/", "#{path}.folder/root")
      opened = Probescope::Tracing::Opened
      expect(opened.beneath(Process.pid, path).read).to eq("text")
      ["#{path}.link", "#{path}.folder/root#{path}", "/proc/self/exe"].each do |link|
        expect { opened.beneath(Process.pid, link) }.to raise_error(Errno::ELOOP)
      end
      expect { opened.beneath(Process.pid, "#{path}.folder") }.to raise_error(Errno::ENXIO)
      expect { opened.beneath(Process.pid, "/dev/null") }.to raise_error(Errno::ENXIO)
    end
  end

  describe "that wait for a file of FUSE that does not answer", :python do
    it "do not hang a command that opens their library" do
      pid = hanging(hostile.elf, 0, "hang-open")
      expect(said_of(pid)).to be_nil.or include("was not read within 1 s")
      expect(@seconds).to be < 8
      result = wheel("status", "-p", pid)
      expect(result.err).to match(/does not have probescope|was not read within 1 s/)
    end

    it "do not hang a command when their probescope_info is such memory" do
      pid = hanging(hostile.elf(symbol: 0x40000).ljust(0x40000, "\0") + hostile.info, 0x20000, "hang-info")
      expect(said_of(pid)).to include("was not read within 1 s")
      refused(pid, /was not read within 1 s/)
    end

    # A child that waits for the file survives a SIGKILL. It also had the command's stdout open, so
    # that a reader of the command's output waited, too.
    it "leave one reader behind for each process, whatever is requested, without an open file that " \
       "others wait for" do
      pid = hanging(hostile.elf(symbol: 0x40000).ljust(0x40000, "\0") + hostile.info, 0x20000, "hang-left")
      honest = host_target
      nameless = IO.sysopen("/etc/hostname")
      reader = Probescope::Tracing::Reader.new
      place = reader.ask(:place, honest.pid)
      before = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      found = Array.new(4) do
        reader.ask_each(:row, [honest.pid, pid, honest.pid]).map do |one|
          one.is_a?(Hash) ? one[:pid] : one.message
        end
      end
      late = "process #{pid}: it was not read within 1 s"
      expect(found.uniq).to eq([[honest.pid, late, honest.pid]])
      expect { reader.ask(:row, pid) }.to raise_error(Probescope::Tracing::Refused, late)
      expect(Process.clock_gettime(Process::CLOCK_MONOTONIC) - before).to be < 4
      children = children_of(Process.pid).select { |one| File.read("/proc/#{one}/stat").match?(/\) D /) }
      expect(children.size).to eq(1)
      open = Dir.children("/proc/#{children.first}/fd").map do |number|
        File.readlink("/proc/#{children.first}/fd/#{number}")
      end
      expect(open.grep_v(/\Aanon_inode/).sort.uniq)
        .to contain_exactly("/dev/null", "/proc/#{pid}/mem", /\Asocket/)
      stub_const("Probescope::Tracing::Reader::MOST_LEFT", 1)
      expect { reader.ask(:row, honest.pid) }
        .to raise_error(Probescope::Tracing::Refused, /other processes of its user are not read/)
      expect(reader.ask(:counters, place)).to be_an(Array)
    ensure
      IO.for_fd(nameless).close
    end

    # A reader that is killed before the FUSE server has received its request ends. So the first
    # questions are repeated until a reader is left behind.
    it "leave one reader of the wheel behind for each process" do
      pid = hanging(hostile.elf(symbol: 0x40000).ljust(0x40000, "\0") + hostile.info, 0x20000, "hang-wheel")
      source = <<~PYTHON
        from probescope.command.errors import Refused
        from probescope.command.reader import Reader
        reader = Reader()
        while input():
            try:
                reader.ask("find", #{pid}) and reader.ask("snapshot", reader.ask("find", #{pid}))
            except Refused as refused:
                print(refused, flush=True)
      PYTHON
      env = Support.plain_env.merge(Support::Python.env(loaded: false))
      child = keep(Support::Child.new(Support::Python.interpreter, "-c", source, env: env, stdin: true))
      ask = lambda do
        answers = child.out.lines.size
        child.puts("once more")
        await("an answer") { child.out.lines.size > answers }
      end
      left = -> { children_of(child.pid).count { |one| File.read("/proc/#{one}/stat").match?(/\) D /) } }
      await("a reader that is left behind") do
        ask.call
        left.call == 1
      end
      2.times { ask.call }
      expect(child.out.lines.uniq).to eq(["process #{pid}: it was not read within 1 s\n"])
      expect(left.call).to eq(1)
    end

    # The FUSE server has read the file's first request without answering it, so the kernel does not
    # end the bpftrace that waits for the answer.
    it "do not delay the end of a bpftrace that reads their library" do
      pid = hanging(hostile.elf, 1, "hang-read")
      program = File.join(hostile_folder, "program.bt")
      File.write(program, "usdt:$1:probescope:* { @ = count() }")
      library = "/proc/#{pid}/root#{hostile_folder}/mount/file"
      order = Probescope::Tracing::Order.of(keys: 8, pages: 8, arguments: [])
      bpftrace = Probescope::Tracing::BpftraceProcess.new(order, program, [], library)
      await("a bpftrace that waits for the file") do
        File.read("/proc/#{bpftrace.pid}/wchan").match?(/fuse|request_wait/)
      end
      began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      bpftrace.discard
      expect(Process.clock_gettime(Process::CLOCK_MONOTONIC) - began).to be < 10
      expect(bpftrace.status).to be_nil
      expect(bpftrace.streams).to be_empty
    end
  end

  describe "that are as expensive to read as possible" do
    it "map 60,000 pages: they are read, with little memory" do
      process = hostile(hostile.elf, "--mappings", 60_000)
      expect(said_of(process.pid)).to eq(:listed)
      expect(@cpu).to be < 5
      expect(@memory).to be < 60 << 20
    end

    it "have files of many sections, symbols and notes: they are refused" do
      huge = 1 << 40
      files = {"sections" => [[0, 0, 0, 0], [11, 0, huge, 2], [3, 0, huge, 0]],
               "notes" => [[0, 0, 0, 0]] + ([[7, 0, 60 << 20, 0]] * 7)}
      files.each_value do |sections|
        path = hostile_file(hostile.elf(sections: sections))
        File.truncate(path, 1 << 32)
        io = File.open(path, "rb")
        elf = Probescope::Tracing::Elf.new(io)
        expect { [elf.symbol("probescope_info"), elf.probes] }.to raise_error(EOFError)
      ensure
        io&.close
      end
    end

    # 1,000 processes of two users, each with its own file that costs as much as a reader's bounds
    # allow.
    it "are a thousand: ps takes at most 5 s of CPU and 100 MB, and shows the honest process", within: 600 do
      names = "\0probescope_info\0".ljust(64 << 10, "x")
      sections = [[0, 0, 0, 0], [11, 0x100000, 64 << 10, 2], [3, 0x80000, names.bytesize, 0],
                  [7, 0x600, 200 << 10, 0]]
      path = hostile_file("")
      1000.times do |i|
        bytes = hostile.elf(sections: sections)
        File.binwrite("#{path}.#{i}", bytes)
        File.truncate("#{path}.#{i}", 0x200000)
      end
      mapper("--children", 1000, "--each", "--user", 65_534, path, within: 120)
      honest = host_target
      expect(pids).to include(honest.pid)
      expect(@memory).to be < 100 << 20
      expect(@cpu).to be < 5
    end
  end

  # The search runs in a fiber whose stack has room for 60 calls.
  it "are a chain of two hundred: their descendants are found without a stack overflow" do
    process = mapper("--chain", 200)
    source = "p Fiber.new { Probescope::Tracing::Descendants.of(#{process.pid}).size }.resume"
    words = [RbConfig.ruby, "-I#{Support::ROOT}/lib", "-rprobescope/tracing/descendants", "-e", source]
    child = keep(Support::Child.new(*words,
                                    env: Support.command_env.merge("RUBY_FIBER_VM_STACK_SIZE" => "32768")))
    child.wait
    expect([child.out, child.err]).to eq(["200\n", ""])
    stub_const("Probescope::Tracing::Descendants::MOST", 100)
    expect(Probescope::Tracing::Descendants.of(process.pid).size).to eq(100)
  end
end
