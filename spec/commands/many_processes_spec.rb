# frozen_string_literal: true

require "spec_helper"
require "support/host_helpers"
require "support/process_trees"

RSpec.describe "Several processes", :bpf do
  # A command that counts in each of these processes; the block does something meanwhile.
  def counting(*arguments, in_each:)
    command = probescope_start(*arguments, "-d", 600, "--json", "--top", 0)
    in_each.each { |process| await_flushes(process, 4) }
    yield command if block_given?
    expect(command.stop(:INT).exitstatus).to eq(0), command.to_s
    command
  end

  def result(command) = JSON.parse(command.out)

  # Waits until a Ruby process has flushed n times while it was listened to.
  def await_intervals(pid, count)
    info = await("the library in #{pid}") { Support::Info.of(pid) }
    await("a tracer in #{pid}") { info.semaphore("stats__done").positive? }
    before = info.header[:flushes]
    await("#{count} flushes of #{pid}", within: 60) { info.header[:flushes] >= before + count }
  end

  describe "named one by one" do
    it "are one table: figures are added up, the largest is the largest, and seconds are the longest" do
      one, two = host_target("--burst", 4), host_target("--burst", 4, "--rows", 2)
      result = probescope("calls", "-p", one.pid, "-p", two.pid, "-p", one.pid, "-d", 2, "--json").json
      expect(result).to include("pids" => [one.pid, two.pid], "seconds" => 4.0)
      expect(result["rows"].to_h { |row| row.values_at("function", "calls") })
        .to eq("Parser#step2" => 3 * 4, "Parser#step1" => 2 * 4 * 2, "Parser#step0" => 4 * 2)
      expect(result["rows"]).to all(include("max_ns" => 2000, "mean_ns" => 3000))
      expect(result["lost"]).to include("rows" => 2 * 4 * 2, "samples" => 5 * 4 * 2)
      expect(result["others"]).to eq("processes" => 0, "rows" => 0)
    end

    it "are rows of each by itself with --by-pid, with shares of its own" do
      one, two = host_target("--burst", 4), host_target("--burst", 4, "--rows", 1)
      arguments = ["exceptions", "-p", one.pid, "-p", two.pid, "-d", 2, "--by-pid"]
      rows = probescope(*arguments, "--json").json["rows"]
      expect(rows.map { |row| row.values_at("pid", "type", "count") })
        .to contain_exactly([one.pid, "Error0", 4], [one.pid, "Error1", 8], [one.pid, "Error2", 12], [two.pid, "Error0", 4])
      expect(rows.last).to include("cpu_share" => 0.02)
    end

    it "leave out the rows of others that map the same file, and say how many were switched on" do
      one, two, other = Array.new(3) { host_target }
      command = counting("hot", "-p", one.pid, "-p", two.pid, in_each: [one, two, other])
      expect(result(command)).to include("pids" => [one.pid, two.pid], "others" => {"processes" => 1, "rows" => 3})
      expect(result(command)["rows"].size).to eq(3)
      expect(command.err).to include("1 other process has the same library and were switched on too; rows left out: 3")
    end

    it "leave no folder behind, and the processes whole" do
      targets = Array.new(2) { host_target }
      folders = link_folders
      counting("hot", "-p", targets[0].pid, "-p", targets[1].pid, in_each: targets) do
        expect((link_folders - folders).size).to eq(1)
        expect(File.stat((link_folders - folders).first).mode & 0o777).to eq(0o700)
        expect(Dir.glob("#{(link_folders - folders).first}/*.so").size).to eq(1)
      end
      expect(link_folders - folders).to be_empty
      targets.each { |process| await("off") { info_of(process).semaphore("stats__done").zero? } }
    end

    it "go on when one of them ends" do
      one, two = host_target("--flushes", 3), host_target
      command = probescope_start("hot", "-p", one.pid, "-p", two.pid, "-d", 600, "--json", "--by-pid")
      one.wait
      await_flushes(two, 3)
      expect(command.stop(:INT).exitstatus).to eq(0)
      expect(command.err).to include("process #{one.pid} ended while it was traced")
      expect(result(command)["rows"].map { |row| row["pid"] }.tally).to eq(one.pid => 3, two.pid => 3)
    end

    it "count also beside one that is stopped, which is named" do
      one, two = Array.new(2) { host_target }
      two.signal(:STOP)
      command = counting("hot", "-p", one.pid, "-p", two.pid, in_each: []) do
        await("the time for silent ones") { one.alive? && info_of(one).header[:flushes] > 150 }
      end
      expect(command.err).to include("process #{two.pid} sent no statistics")
      expect(result(command)["rows"].size).to eq(3)
    end
  end

  describe "by name" do
    it "are all of that name with the library" do
      Dir.mktmpdir do |folder|
        copy = File.join(folder, "ps-by-name-long-name")
        FileUtils.cp(Support::HostTarget.binary, copy)
        targets = Array.new(2) { host_target("--burst", 4, binary: copy) }
        result = probescope("alloc", "--comm", "ps-by-name-long-name", "-d", 2, "--json").json
        expect(result["pids"]).to match_array(targets.map(&:pid))
        expect(result["rows"].sum { |row| row["count"] }).to eq((1 + 2 + 3) * 4 * 2)
      end
    end
  end

  describe "that fork" do
    it "are traced with the workers there are and those that come, and keep what an ended one told" do
      master, (first, second) = preforking(2)
      command = probescope_start("calls", "-p", master.pid, "--workers", "-d", 600, "--json", "--by-pid")
      await_intervals(first, 2)
      third = another_worker(master)
      await_intervals(third, 3)
      master.puts("end")
      await("its end") { !File.exist?("/proc/#{third}") }
      await_intervals(second, 2)
      command.stop(:INT)
      expect(result(command)["pids"]).to contain_exactly(master.pid, first, second, third)
      runs = result(command)["rows"].select { |row| row["function"] == "Job#run" }.to_h { |row| [row["pid"], row["calls"]] }
      expect(runs.keys).to contain_exactly(first, second, third)
      expect(runs.values).to all(be_positive)
      expect(command.err).to include("process #{third} ended while it was traced")
    end

    it "need no library in the process that starts them" do
      shell = keep(Support::Child.new("sh", "-c", "#{Support::HostTarget.binary} & #{Support::HostTarget.binary} & wait"))
      await("both") { shell.out.scan("ready").size == 2 }
      children = children_of(shell.pid)
      result = probescope("hot", "-p", shell.pid, "--workers", "-d", 1, "--json")
      expect(result.json["pids"]).to match_array(children)
      expect(result.json["rows"].size).to eq(3)
    end

    it "may have none yet: that is said" do
      result = probescope("hot", "-p", host_target("--burst", 4).pid, "--workers", "-d", 1)
      expect(result.err).to match(/process \d+ has no children with probescope yet; those to come are traced too/)
      expect(result.status).to be_success
    end
  end

  describe "with other tracers on them" do
    # Rows counted twice would be twice the seconds: row 0 has one call a flush, and a flush counts for a second.
    def once?(result)
      calls = result["rows"].find { |row| row["function"] == "Parser#step0" }["calls"]
      expect(calls).to be_within(2).of(result["seconds"])
    end

    it "are counted once by each of two commands, and of one process when a tracer of another kind leaves meanwhile" do
      one, two = Array.new(2) { host_target }
      perf = attacher(one, "function__stats", "stats__done", library: Support::HostTarget.binary, wait: false)
      perf.attached
      inner = nil
      outer = counting("calls", "-p", one.pid, "-p", two.pid, "--by-pid", in_each: [one, two]) do
        inner = probescope_start("calls", "-p", one.pid, "-d", 2, "--json")
        await("its bpftrace") { tracers_of(one.pid).any? }
        perf.finish
        inner.wait
        await_flushes(two, 5)
      end
      once?(result(inner))
      expect(result(outer)["rows"].map { |row| row["pid"] }.tally).to eq(one.pid => 3, two.pid => 3)
      once?(result(outer))
    end
  end

  describe "in containers" do
    def told(*processes, **options)
      result = probescope("calls", *processes.flat_map { |pid| ["-p", pid] }, "-d", 2, "--json", **options)
      expect(result.status).to be_success, result.err
      result.json["rows"].to_h { |row| row.values_at("function", "calls") }
    end

    def binary = Support::HostTarget.binary

    it "are traced from outside, one by itself and several together" do
      own = "mount -t tmpfs none /mnt; cp #{binary} /mnt/target; exec /mnt/target --burst 4"
      first, second = Array.new(2) { inside(container(own)) }
      expect(told(first)).to include("Parser#step0" => 4, "Parser#step2" => 12)
      # Same inode number, same contents, and yet two files: the second gets a link when it turns out to be deaf.
      expect(told(first, second)).to include("Parser#step0" => 4 * 2, "Parser#step2" => 12 * 2)
    end

    it "are counted once over one overlay layer, whatever device they show" do
      Dir.mktmpdir do |folder|
        FileUtils.mkdir_p(%w[lower].map { |name| File.join(folder, name) })
        FileUtils.cp(binary, File.join(folder, "lower/target"))
        overlay = "mount -t tmpfs none /mnt; cd /mnt; mkdir upper work all; " \
                  "mount -t overlay overlay -o lowerdir=#{folder}/lower,upperdir=upper,workdir=work all; exec all/target --burst 4"
        both = Array.new(2) { inside(container(overlay)) }
        devices = both.map { |pid| File.read("/proc/#{pid}/maps")[%r{^\S+ \S+ \S+ (\S+) \d+ +\S*/target$}, 1] }
        expect(devices.uniq.size).to eq(2)
        expect(told(*both)).to eq("Parser#step0" => 4 * 2, "Parser#step1" => 8 * 2, "Parser#step2" => 12 * 2)
      end
    end

    it "cannot be told apart by an older bpftrace in there, which is refused; by a newer one they are" do
      child = container(<<~SH, env: ENV.to_h, within: 60)
        #{binary} --burst 4 > /dev/null & one=$!
        #{binary} --burst 4 > /dev/null & two=$!
        until [ "$(cat /proc/$one/comm /proc/$two/comm | grep -c host_target)" = 2 ]; do :; done
        #{RbConfig.ruby} #{Support::EXE} hot -d 1 -p $one -p $two --json || true
        kill $one $two
        echo ready
      SH
      if (Support::Bpf.version <=> [0, 23]).negative?
        expect(child.err).to include("counts processes by their numbers outside of this PID namespace").and include("try: trace one")
      else
        expect(JSON.parse(child.out.lines.first)["rows"].size).to eq(3)
      end
    end
  end

  describe "whose library is gone from the disk" do
    def copied
      Dir.mktmpdir do |folder|
        copy = File.join(folder, "copy")
        FileUtils.cp(Support::HostTarget.binary, copy)
        yield copy
      end
    end

    it "are traced by a link, by itself and beside one with the new library" do
      copied do |copy|
        old = host_target("--burst", 4, binary: copy)
        FileUtils.cp(copy, "#{copy}.new")
        File.rename("#{copy}.new", copy)
        new = host_target("--burst", 4, binary: copy)

        row = probescope("ps", "--json").json["rows"].find { |candidate| candidate["pid"] == old.pid }
        expect(row).to include("deleted" => true)
        expect(probescope("ps").out).to match(/^ *#{old.pid} .* gone *$/)

        alone = probescope("calls", "-p", old.pid, "-d", 2, "--json").json
        expect(alone["rows"].map { |found| found["calls"] }).to eq([12, 8, 4])
        expect(alone["others"]).to eq("processes" => 0, "rows" => 0)
        both = probescope("calls", "-p", old.pid, "-p", new.pid, "-d", 2, "--json").json
        expect(both["rows"].map { |found| found["calls"] }).to eq([24, 16, 8])
      end
    end
  end

  describe "whose command or helper is killed with -9" do
    def killed(who)
      targets = Array.new(2) { host_target }
      folders = link_folders
      tracers = link_tracers
      command = probescope_start("hot", "-p", targets[0].pid, "-p", targets[1].pid, "-d", 600)
      targets.each { |process| await_flushes(process, 3) }
      helper = children_of(command.pid).first
      Process.kill(:KILL, who == :helper ? helper : command.pid)
      await("the end of bpftrace") { (link_tracers - tracers).empty? }
      targets.each { |process| await("off") { info_of(process).semaphore("stats__done").zero? } }
      folders
    end

    it "are not traced any more, and the folder of links goes: at once, or with the next command" do
      folders = killed(:command)
      await("no folder") { (link_folders - folders).empty? }

      folders = killed(:helper)
      expect((link_folders - folders).size).to eq(1)
      targets = Array.new(2) { host_target("--burst", 1) }
      probescope("hot", "-p", targets[0].pid, "-p", targets[1].pid, "-d", 1)
      expect(link_folders - folders).to be_empty
    end
  end

  describe "one of which gets the number of another" do
    # A process with this number, or nil when others were faster each time.
    def with_number(pid)
      100.times do
        File.write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_s)
        child = host_target
        return child if child.pid == pid

        child.kill_all
      end
      nil
    end

    it "is not taken for it" do
      one, two = Array.new(2) { host_target }
      command = counting("hot", "-p", one.pid, "-p", two.pid, in_each: [one, two]) do
        one.stop(:KILL)
        skip "the number went to somebody else" unless with_number(one.pid)
        await_flushes(two, 3)
      end
      expect(command.err).to include("process #{one.pid} ended, and another one got its number")
    end
  end
end
