# frozen_string_literal: true

require "spec_helper"
require "support/shared/worker"
require "probescope/cli"
require "probescope/tracing/report"

# The process knows which events it makes in which function.
RSpec.describe "on EVENT, with a Ruby process", :bpf do
  work = <<~'RUBY'
    require "fiddle"
    C = Fiddle::Handle::DEFAULT
    LONG, POINTER, INT = Fiddle::TYPE_LONG, Fiddle::TYPE_VOIDP, Fiddle::TYPE_INT
    LABS = Fiddle::Function.new(C["labs"], [LONG], LONG)
    MALLOC = Fiddle::Function.new(C["malloc"], [LONG], POINTER)
    FREE = Fiddle::Function.new(C["free"], [POINTER], Fiddle::TYPE_VOID)
    MMAP = Fiddle::Function.new(C["mmap"], [POINTER, LONG, INT, INT, INT, LONG], POINTER)
    MADVISE = Fiddle::Function.new(C["madvise"], [POINTER, LONG, INT], INT)
    PAGES = 1000

    class Shop
      def asks(who, times) = times.times { Process.getpriority(Process::PRIO_PROCESS, who) }
      def priorities = asks(0, 100)
      def others = asks(Process.pid, 30)
      def each_one = 20.times { yield }
      def in_block = each_one { asks(0, 1) }

      def raises
        Process.getpriority(Process::PRIO_PROCESS, 0)
        raise "left by an exception"
      end

      def rescues
        raises
      rescue RuntimeError
        Process.getpriority(Process::PRIO_PROCESS, 0)
      end

      def in_fiber
        loop do
          2.times { Process.getpriority(Process::PRIO_PROCESS, 0) }
          Fiber.yield
        end
      end

      def fibers
        fiber = Fiber.new { in_fiber }
        10.times { fiber.resume }
      end

      def in_thread = 15.times { Process.getpriority(Process::PRIO_PROCESS, 0) }

      define_method("name" * 25) { Process.getpriority(Process::PRIO_PROCESS, 0) }

      # The sum of the arguments is 50.
      def labs = (1..100).each { |number| LABS.call(number.even? ? number : -number) }
      def mallocs = 200.times { FREE.call(MALLOC.call(1 << 20)) }

      def maps
        @memory = MMAP.call(nil, PAGES * 4096, 3, 0x22, -1, 0)
        MADVISE.call(@memory, PAGES * 4096, 15) # pages of 4 KiB only
      end

      def touches = PAGES.times { |page| @memory[page * 4096] = 1 }

      def work
        priorities
        others
        in_block
        rescues
        fibers
        4.times.map { Thread.new { in_thread } }.each(&:join)
        public_send("name" * 25)
        labs
        mallocs
        maps
        Thread.new { touches }.join
      end
    end

    puts "labs #{C["labs"].to_i}"
    trap("USR2") { exit! }
  RUBY

  include_context "with a worker", work

  # Runs these commands at the same time while the processes work once. Returns their JSON. The block
  # runs when all probes are attached.
  def traced(*commands, processes: [shop])
    started = tracing("on", *commands, processes: processes)
    yield if block_given?
    work_once(*processes)
    results("on", started)
  end

  # {function => figure}, of the functions of Shop
  def by_function(told, figure = "events")
    rows = told["rows"].select { |row| row["function"]&.start_with?("Shop#") }
    rows.group_by { |row| row["function"] }.transform_values { |same| same.sum { |row| row[figure] } }
  end

  asked = "tracepoint:syscalls:sys_enter_getpriority"

  it "counts tracepoints, calls of C and page faults of each function, and adds up their values",
     :valgrind do
    counted, stacks, labs, mallocs, faults = traced(
      [asked], [asked, "--sum", "who", "--stack", "2"], ["uprobe:libc.so.6:labs", "--sum", "arg0"],
      ["uprobe:libc.so.6:malloc", "--sum", "arg0"], ["software:page-faults:1"]
    )
    expect(by_function(counted))
      .to eq("Shop#asks" => 150, "Shop#raises" => 1, "Shop#rescues" => 1, "Shop#in_fiber" => 20,
             "Shop#in_thread" => 60, "Shop##{"name" * 25}"[0, 63] => 1)
    expect(counted["not_covered"]).to include("names that may be cut after 63 bytes: 1")
    expect(labs["not_covered"].grep(/may be cut/)).to eq([])
    expect(counted["lost"]).to include("unread" => 0, "map_full" => 0)
    expect(counted).to include("event" => asked, "reach" => [/every process of the machine/])
    # The commands were ended early.
    expect(counted["not_covered"]).to include(Probescope::Tracing::Report::BEYOND_THE_END)

    called = stacks["rows"].to_h do |row|
      [[row["function"], *row["callers"].map { |one| one["function"] }], row]
    end
    expect(called.transform_values { |row| row["events"] })
      .to include(%w[Shop#asks Shop#priorities] => 100, %w[Shop#asks Shop#others] => 30,
                  %w[Shop#asks Shop#each_one] => 20, %w[Shop#raises Shop#rescues] => 1,
                  %w[Shop#rescues Shop#work] => 1, %w[Shop#in_fiber] => 20, %w[Shop#in_thread] => 60)
    expect(called.transform_values { |row| row["sum"] })
      .to include(%w[Shop#asks Shop#others] => 30 * shop.pid, %w[Shop#asks Shop#priorities] => 0)

    expect(by_function(labs)).to eq("Shop#labs" => 100)
    expect(by_function(labs, "sum")).to eq("Shop#labs" => 50)
    expect(labs).to include("sum_of" => "arg0",
                            "reach" => [/\Astops each call of labs in (at least )?\d+ process.*valgrind/])

    expect(by_function(mallocs)["Shop#mallocs"]).to be_between(200, 400)
    expect(by_function(mallocs, "sum")["Shop#mallocs"]).to be_between(200 << 20, (200 << 20) + 100_000)

    expect(by_function(faults)["Shop#touches"]).to be_between(1000, 1050)
  end

  # The breakpoint of a uprobe is in a process's copy of the code.
  def breakpoint?(process)
    address = process.out[/^labs (\d+)$/, 1].to_i
    File.open("/proc/#{process.pid}/mem", "rb") { |memory| memory.pread(1, address) } == "\xCC".b
  end

  # bpftrace 0.17 sets the breakpoint everywhere, also with -p. Later versions may not.
  it "says how many processes a uprobe stops, and counts it in several processes", :slow, :valgrind do
    skip "int3 is of x86-64" unless RbConfig::CONFIG["host_cpu"] == "x86_64"

    others = [start, start]
    libc = File.read("/proc/#{shop.pid}/maps")[%r{r-xp .* (/.*/libc\.so\.6)$}, 1]
    File.symlink(libc, link = File.join(@folder, "a \"link\"\n$(id):x"))
    event = "uprobe:#{link}:labs"
    stopped = nil
    alone, together = [[shop], [shop, others.first]].map do |processes|
      (told,) = traced([event], processes: processes) do
        stopped = [shop, *others].map { |process| breakpoint?(process) }
        expect(stopped.first(processes.size)).to all(be(true))
      end
      expect(told["reach"].first[/in (?:at least )?(\d+) process/, 1].to_i).to be >= 3
      told
    end
    expect(stopped).to eq([true, true, true])
    expect([alone, together].map { |told| by_function(told)["Shop#labs"] }).to eq([100, 200])
    expect(others.map { |process| breakpoint?(process) }).to eq([false, false])
  end

  it "refuses a uprobe while valgrind runs code of its file" do
    skip "valgrind is not installed" unless system("sh", "-c", "command -v valgrind >/dev/null")

    library = File.join(@folder, "part.so")
    File.write("#{library}.c", "int part(int x) { return x + 1; }")
    expect(system("cc", "-shared", "-fPIC", "-O0", "-o", library, "#{library}.c")).to be(true)
    process = target(<<~RUBY, library).ready
      require "fiddle"
      part = Fiddle::Function.new(Fiddle.dlopen(ARGV.first)["part"], [Fiddle::TYPE_INT], Fiddle::TYPE_INT)
      $stdout.sync = true
      puts "ready"
      loop { part.call(1) && sleep(0.01) }
    RUBY
    words = ["on", "uprobe:part.so:part", "-p", process.pid, "--json"]
    under = keep(Support::Child.new("valgrind", "-q", "/bin/sleep", "600", env: {"LD_PRELOAD" => library}))
    await("valgrind") do
      maps = File.read("/proc/#{under.pid}/maps")
      maps.match?(/-linux$/) && maps.include?(library)
    end
    refused = probescope(*words, "-d", 600)
    expect([refused.status.exitstatus, refused.out]).to eq([1, ""]), refused.err
    expect(refused.err.lines)
      .to match([/a uprobe in part.so could end process #{under.pid}, which valgrind runs/, /\A  try: /])
    under.stop(:KILL)
    counted = probescope(*words, "-d", 1)
    expect(counted.status.exitstatus).to eq(0), counted.err
    expect(JSON.parse(counted.out)["lost"]["untold"]).to be_positive
  end

  # endings_spec.rb has the end of a process for another command.
  it "shows what was counted until the process ended", full: "another one of its kind" do
    (command,) = tracing("on", [asked])
    work_once(shop)
    await_intervals(shop)
    shop.signal(:USR2)
    expect(command.wait(within: 60).exitstatus).to eq(0), command.err
    expect(by_function(JSON.parse(command.out))["Shop#asks"]).to eq(150)
    expect(command.err).to include("process #{shop.pid} ended while it was traced")
  end

  refused = {
    ["tracepoint:syscalls:sys_enter_none"] => [1, "this kernel has no tracepoint syscalls:sys_enter_none"],
    [asked, "--sum", "none"] => [1, "has no integer field none; it has __syscall_nr, which, who"],
    ["tracepoint:syscalls:sys_enter_openat", "--sum", "filename"] => [1, "has no integer field filename"],
    ["uprobe:libnone.so:labs"] => [1, "maps no code of a file libnone.so"],
    ["uprobe:/etc/passwd:labs"] => [1, "maps no code of a file /etc/passwd"],
    ["uprobe:libc.so.6:no_such_function"] => [1, "libc.so.6 has no function no_such_function"],
    ["uprobe:libc.so.6:strlen"] => [1, "strlen of libc.so.6 has several versions"],
    ["uprobe:libc.so.6:labs", "--sum", "arg9"] => [2, "--sum takes no \"arg9\""],
    ["software:cs", "--sum", "arg0"] => [2, "software:context-switches has no values"],
    ["software:cs", "--stack", "9"] => [2, "--stack takes 1 to 8"],
    ["software:cpu-clock"] => [2, "there is no software event \"cpu-clock\""],
    [] => [2, "which event?"]
  }
  it "says why an event cannot be counted, before bpftrace starts" do
    refused.each do |words, (status, why)|
      told = probescope("on", *words, "-p", shop.pid, "-d", 600)
      expect([told.status.exitstatus, told.out]).to eq([status, ""]), told.err
      expect(told.err.lines).to match([a_string_including(why), /\A  try: /])
    end
  end
end

# The places at which a program finds the function, and its name, are on pages that are not in memory.
RSpec.describe "on EVENT, with processes whose memory cannot be read", :bpf do
  unread = %w[record epoch stack frames name]

  def traced(processes, *options)
    pids = processes.flat_map { |process| ["-p", process.pid] }
    run = probescope("on", "tracepoint:syscalls:sys_enter_access", *pids, "-d", 1, "--json", *options,
                     within: 150)
    expect(run.status.exitstatus).to eq(0), run.err
    JSON.parse(run.out).tap { |told| expect(told).to fit_the_schema_of("on") }
  end

  it "has the events in rows of an unknown function, and counts them" do
    processes = [*unread, "none", "late"].map { |part| host_target("--rows", 1, "--unread", part) }
    told = traced(processes, "--by-pid")
    functions = processes.map do |process|
      told["rows"].select { |row| row["pid"] == process.pid }.map { |row| row["function"] }
    end
    # Those of "late" had no name when they happened.
    expect(functions).to eq([*[["(unknown)"]] * unread.size, ["Parser#step0"], ["Parser#late"]])
    unknown = told["rows"].select { |row| row["function"] == "(unknown)" }.sum { |row| row["events"] }
    expect(told["lost"]).to include("unread" => unknown, "map_full" => 0)
    expect(unknown).to be_positive
  end

  it "has callers without a name as unknown ones" do
    told = traced([host_target("--rows", 2, "--unread", "name")], "--stack", "2")
    functions = told["rows"].map { |row| [row["function"], *row["callers"].map { |one| one["function"] }] }
    expect(functions).to match_array([["(unknown)"], ["(unknown)"] * 2])
  end
end
