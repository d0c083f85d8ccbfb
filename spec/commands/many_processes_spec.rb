# frozen_string_literal: true

require "spec_helper"
require "support/host_helpers"
require "support/process_trees"
require "probescope/commands/calls"

# An attach takes bpftrace about a second, so most examples check several things in one attach.
RSpec.describe "Several processes", :bpf do
  def binary = Support::HostTarget.binary
  def result(command) = JSON.parse(command.out)
  def pids(*numbers) = numbers.flat_map { |pid| ["-p", pid] }

  # Starts a command, waits until it counts in each of these processes of host_target, runs the
  # block, and stops the command.
  def counting(*arguments, in_each:, tracers: 1)
    command = probescope_start(*arguments, "-d", 600, "--json")
    infos = in_each.map { |pid| memory(pid) }
    await("every process of #{command}", within: 60) do
      infos.all? { |info| info.semaphore("stats__done").positive? } && in?(command, tracers)
    end
    starts = infos.map { |info| info.header[:flushes] }
    await("flushes") { infos.zip(starts).all? { |info, start| info.header[:flushes] >= start + 4 } }
    yield command if block_given?
    (@heard ||= {})[command] = infos.zip(starts).map { |info, start| info.header[:flushes] - start }.min
    expect(command.stop(:INT).exitstatus).to eq(0), command.to_s
    command
  end

  # Returns the probescope_info of a host_target, wherever its file is.
  def memory(pid)
    exe = File.readlink("/proc/#{pid}/exe")
    start = File.foreach("/proc/#{pid}/maps").find { |line| line.chomp.end_with?(" #{exe}") }[/\A\h+/].hex
    Support::Info.new(pid, start + dynamic_symbol(binary, "probescope_info").fetch(:address))
  end

  # Returns whether every bpftrace of the command waits for events.
  def in?(command, tracers)
    found = bpftraces(command)
    found.size == tracers && found.all? { |pid| File.read("/proc/#{pid}/wchan").include?("epoll") }
  rescue SystemCallError
    false
  end

  # Returns how often the process has flushed.
  def flushes(process) = info_of(process).header[:flushes]

  def counts(command, name = "Parser#step0", figure = "calls")
    result(command)["rows"].select { |row| row["function"] == name }.to_h { |row| [row["pid"], row[figure]] }
  end

  # Waits until a traced Ruby process has flushed this number of times.
  def await_intervals(pid, count)
    info = await("the library in #{pid}") { Support::Info.of(pid) }
    await("a tracer in #{pid}") { info.semaphore("stats__done").positive? }
    before = info.header[:flushes]
    await("#{count} flushes of #{pid}", within: 60) { info.header[:flushes] >= before + count }
  end

  # Makes a copy of host_target, which the kernel takes for another file.
  def copied(name = "copy")
    Dir.mktmpdir do |folder|
      copy = File.join(folder, name)
      FileUtils.cp(binary, copy)
      yield copy
    end
  end

  # Starts a host_target that flushes once, then makes four flushes that count, and ends.
  def four_flushes(*options) = host_target("--burst", 4, "--flushes", 4, *options)

  it "named one by one give one table, without the rows of other processes that map the same file" do
    one, two, other = four_flushes, four_flushes("--rows", 2), host_target
    command = probescope_start("calls", *pids(one.pid, two.pid, one.pid), "-d", 600, "--json")
    folder = link_folder(command)
    expect(Dir.glob("#{folder}/*.so").size).to eq(1) # with two links to one file bpftrace would count twice
    expect(File.stat(folder).mode & 0o777).to eq(0o700)
    expect(command.wait.exitstatus).to eq(0), command.to_s

    expect(result(command))
      .to include("pids" => [one.pid, two.pid], "seconds" => 4.0, "others" => {"processes" => 1, "rows" => 3})
    expect(command.err)
      .to include("1 other process has the same library and was switched on too; rows left out: 3")
    expect(result(command)["rows"].to_h { |row| row.values_at("function", "calls") })
      .to eq("Parser#step2" => 3 * 4, "Parser#step1" => 2 * 4 * 2, "Parser#step0" => 4 * 2)
    expect(result(command)["rows"]).to all(include("max_ns" => 2000, "mean_ns" => 3000))
    expect(result(command)["lost"]).to include("rows" => 2 * 4 * 2, "samples" => 5 * 4 * 2)
    expect(File.exist?(folder)).to be(false)
    await("off") { info_of(other).semaphore("stats__done").zero? }
  end

  it "have the others reported without a number when those have ended" do
    trace = instance_double(Probescope::Tracing::Result, others: {processes: 0, rows: 10})
    said = []
    Probescope::Tracing::Checks.new(trace, nil, some: false, keys: 1, max_overhead: nil) { |text| said << text }
                               .send(:others)
    expect(said).to eq(["other processes that have ended had the same library and were switched on too; " \
                        "rows left out: 10"])
  end

  # Returns a process with this number, or nil if other processes took the number each time.
  def with_number(pid)
    100.times do
      File.write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_s)
      child = host_target
      return child if child.pid == pid

      child.kill_all
    end
    nil
  end

  it "give separate rows with --by-pid, even when one ends, one is stopped and a number is reused" do
    ending, live, stopped, killed = four_flushes, host_target("--burst", 4, "--rows", 1), host_target,
                                    host_target
    stopped.signal(:STOP)
    arguments = ["exceptions", *pids(ending.pid, live.pid, stopped.pid, killed.pid), "--by-pid"]
    command = probescope_start(*arguments, "-d", 1, "--json") # it waits 5 s for silent processes
    ending.wait
    killed.stop(:KILL)
    reused = with_number(killed.pid)
    expect(command.wait.exitstatus).to eq(0), command.to_s
    rows = result(command)["rows"].reject { |row| row["pid"] == killed.pid }
    expect(rows.map { |row| row.values_at("pid", "type", "count") })
      .to contain_exactly([ending.pid, "Error0", 4], [ending.pid, "Error1", 8], [ending.pid, "Error2", 12],
                          [live.pid, "Error0", 4])
    expect(rows.find { |row| row["pid"] == live.pid }).to include("cpu_share" => 0.02, "per_second" => 1.0)
    expect(command.err)
      .to match(/process(es)? #{ending.pid}(, #{killed.pid})? ended while (it was|they were) traced/)
    expect(command.err)
      .to include("nothing is known of process #{stopped.pid}, which is left out: it is stopped\n")
    expect(result(command)["pids"] - [killed.pid]).to contain_exactly(ending.pid, live.pid)
    expect(result(command)["processes"].to_h { |one| one.values_at("pid", "left_out") })
      .to match(ending.pid => nil, live.pid => nil, stopped.pid => "it is stopped",
                killed.pid => be_nil.or(match(/\Ait ended before /)))
    expect(command.err).to include("process #{killed.pid} ended, and another one got its number") if reused
  end

  it "by name are all with that name that serve the probe; with --all by two tracers" do
    copied("ps-by-name-long-name") do |copy|
      one, two = Array.new(2) { host_target(binary: copy) }
      refusing = host_target("--state", 3, binary: copy)
      command = counting("calls", "--comm", "ps-by-name-long-name", "--all",
                         in_each: [one.pid, two.pid], tracers: 2) do
        expect(info_of(two).semaphore("functions__all")).to be_positive
      end
      expect(result(command)["pids"]).to contain_exactly(one.pid, two.pid)
      expect(result(command)["rows"].map { |row| row["function"] })
        .to eq(%w[Parser#step2 Parser#step1 Parser#step0])
      expect(command.err)
        .to include("process #{refusing.pid} does not serve function__stats: as the spec asked")
    end
  end

  it "that fork are traced with their new workers, beside a process of another runtime; the rows " \
     "of an ended worker stay" do
    master, = preforking(0)
    other = host_target("--abi", 2)
    command = probescope_start("calls", *pids(master.pid, other.pid), "--workers", "-d", 600, "--json",
                               "--by-pid")
    await_intervals(master.pid, 1)
    first, second = Array.new(2) { another_worker(master) }
    await_intervals(second, 3)
    master.puts("end")
    await("its end") { !File.exist?("/proc/#{second}") }
    await_intervals(first, 1)
    expect(command.stop(:INT).exitstatus).to eq(0), command.to_s

    expect(result(command)["pids"]).to contain_exactly(master.pid, other.pid, first, second)
    expect(counts(command, "Job#run")).to match(first => be_positive, second => be_positive)
    expect(counts(command)).to match(other.pid => be_between(1, flushes(other)))
    expect(command.err).to include("process #{second} ended while it was traced")
      .and include("processes #{master.pid}, #{other.pid} have no children with probescope yet; " \
                   "those to come are traced too")
  end

  it "may have a parent without the library; the command names a child that comes with another library" do
    copied do |copy|
      shell =
        keep(Support::Child.new("sh", "-c", "#{binary} & #{binary} & read go; #{copy} & wait", stdin: true))
      await("both") { shell.out.scan("ready").size == 2 }
      children = children_of(shell.pid)
      late = nil
      command = counting("hot", "-p", shell.pid, "--workers", "--by", "self", in_each: children) do
        shell.puts("go")
        late = await("the late one") do
          (children_of(shell.pid) - children).find { |pid| File.readlink("/proc/#{pid}/exe") == copy }
        end
        await("a third ready") { shell.out.scan("ready").size == 3 }
        seen = memory(children.first).header[:flushes]
        await("two looks for children") { memory(children.first).header[:flushes] > seen + 10 }
      end
      expect(result(command)["pids"]).to match_array(children)
      expect(result(command)["rows"].size).to eq(3)
      expect(command.err).to include("process #{late} came later with another library, and nobody traced it")
    end
  end

  # Starts perf on a probe in the way that perf's documentation shows. Returns nil if perf is not
  # installed.
  def perf(process, probe)
    return unless system("perf", "--version", out: File::NULL, err: File::NULL)

    @perf = Dir.mktmpdir
    run = ["perf", "--buildid-dir", "#{@perf}/cache"]
    tool(*run, "buildid-cache", "--add", binary)
    @event = tool(*run, "probe", "-x", binary, "sdt_probescope:#{probe}")[/^ +(sdt_probescope:\w+) /, 1]
    recording = keep(Support::Child.new(*run, "record", "-q", "-o", "#{@perf}/data", "-e", @event,
                                        "-p", process.pid.to_s))
    await("perf in the process") { info_of(process).semaphore(probe).positive? }
    recording
  end

  after do
    stop_processes # perf cannot delete an event in use
    system("perf", "probe", "-q", "-d", @event) if @event
    FileUtils.rm_rf(@perf) if @perf
  end

  # Row 0 has one call a flush, and there is at most one flush a second. Rows counted twice would
  # give twice the seconds. A busy machine has fewer flushes, but at least those during which the
  # command was seen to count. When the tracer leaves, it disables one of two probes first.
  def once(command)
    be_between(@heard[command] - 2, 1.5 * result(command)["seconds"])
  end

  it "are counted once by each of two commands, beside perf and a third tracer that leaves meanwhile" do
    one, two = Array.new(2) { host_target }
    perf = perf(one, "stats__done")
    bare = attacher(one, "function__stats", "stats__done", library: binary, wait: false)
    bare.attached
    inner = nil
    outer = counting("calls", *pids(one.pid, two.pid), "--by-pid", in_each: [one.pid, two.pid]) do
      inner = counting("calls", "-p", one.pid, in_each: [one.pid]) do
        bare.finish
        await_flushes(one, 30)
      end
      perf&.stop(:INT)
      await_flushes(one, 4) # the command continues
    end
    expect(counts(inner)).to match(nil => once(inner))
    expect(counts(outer)).to match(one.pid => once(outer), two.pid => be_between(8, flushes(two)))
    if perf
      expect(tool("perf", "script", "-i", "#{@perf}/data").scan("stats__done:").size)
        .to be_between(8, flushes(one))
    end
    await("off") { info_of(one).semaphore("stats__done").zero? }
  end

  def device(pid) = File.read("/proc/#{pid}/maps")[%r{^\S+ \S+ \S+ (\S+) \d+ +\S*/target$}, 1]

  it "are counted once each in containers, over one overlay layer, and with a library deleted from " \
     "the disk" do
    copied do |copy|
      own = "mount -t tmpfs none /mnt; cp #{binary} /mnt/target; exec /mnt/target"
      overlay = "mount -t tmpfs none /mnt; cd /mnt; mkdir upper work all; " \
                "mount -t overlay overlay -o " \
                "lowerdir=#{File.dirname(copy)}/lower,upperdir=upper,workdir=work all; exec all/target"
      FileUtils.mkdir_p(File.join(File.dirname(copy), "lower"))
      FileUtils.cp(binary, File.join(File.dirname(copy), "lower/target"))
      # The first two processes map two files with the same inode number and the same contents. The
      # second file gets a link when no event comes from it. The other two processes show two
      # devices and map one file.
      contained = [own, own, overlay, overlay].map { |script| inside(container(script)) }
      expect(contained.map { |pid| device(pid) }.uniq.size).to eq(4)
      gone = host_target(binary: copy)
      FileUtils.cp(copy, "#{copy}.new")
      File.rename("#{copy}.new", copy)
      new = host_target(binary: copy)

      rows = probescope("ps", "--json").json["rows"].to_h { |row| row.values_at("pid", "deleted") }
      expect(rows).to include(gone.pid => true, new.pid => false)
      all = [*contained, gone.pid, new.pid]
      command = counting("calls", *pids(*all), "--by-pid", in_each: all)
      expect(counts(command)).to match(all.to_h { |pid| [pid, be_between(1, memory(pid).header[:flushes])] })

      # Each process by itself.
      [contained.first, gone.pid].each do |pid|
        alone = counting("calls", *pids(pid), in_each: [pid])
        expect(result(alone)).to include("pids" => [pid], "others" => {"processes" => 0, "rows" => 0})
        expect(counts(alone)).to match(nil => be_positive)
      end
    end
  end

  it "cannot be distinguished inside a container by an older bpftrace, which the command refuses; " \
     "a newer one distinguishes them" do
    child = container(<<~SH, env: Support.command_env, within: 60)
      #{binary} > /dev/null & one=$!
      #{binary} > /dev/null & two=$!
      until [ "$(cat /proc/$one/comm /proc/$two/comm | grep -c host_target)" = 2 ]; do :; done
      #{RbConfig.ruby} #{Support::EXE} hot -d 1 -p $one -p $two --json || true
      kill $one $two
      echo ready
    SH
    if (Support::Bpf.version <=> [0, 24, 2]).negative?
      expect(child.err).to match(
        /counts processes by their numbers outside of this PID namespace|takes threads for processes/
      )
        .and match(/try: .*-p PID/)
    else
      expect(JSON.parse(child.out.lines.first)["rows"].size).to eq(3)
    end
  end

  it "are not traced any more when the helper or the command is killed, " \
     "and the next command removes the folder of links" do
    targets = Array.new(2) { host_target }
    folders = %i[helper command].map do |who|
      command = probescope_start("hot", *pids(*targets.map(&:pid)), "-d", 600)
      folder, bpftrace = link_folder(command), bpftraces(command).first
      targets.each { |process| await_flushes(process, 3) }
      Process.kill(:KILL, who == :helper ? children_of(command.pid).first : command.pid)
      await("the end of bpftrace") { !File.exist?("/proc/#{bpftrace}") }
      targets.each { |process| await("off") { info_of(process).semaphore("stats__done").zero? } }
      folder
    end
    # The next command deletes the folder of the killed helper. The helper of the killed command
    # deletes that command's folder: it outlives the command for a moment.
    folders.each { |folder| await("the end of #{folder}") { !File.exist?(folder) } }
  end
end
