# frozen_string_literal: true

require "spec_helper"
require "support/shared/worker"
require "probescope/cli"
require "probescope/tracing/report"

# The process was attached to in the middle of calls of Main#serve and Thread's block.
RSpec.describe "syscalls on a Ruby process", :bpf do
  work = <<~'RUBY'
    FOLDER = ARGV.first
    FILE = File.join(FOLDER, "known")
    File.write(FILE, "x")
    PATHS = ["/nowhere/a,b\"\n\e[31m, \xff", "/nowhere/a,b\"\n\e[31m, \xfe",
             "/nowhere/#{"x" * 200}"].freeze

    class Shop
      def initialize = @io = File.open("/dev/null", "w")
      def stats = 100.times { File.stat(FILE) }
      def writes = 50.times { @io.syswrite("four") }

      def fails
        7.times { File.stat("/nowhere") rescue nil }
        3.times { Dir.mkdir(FOLDER) rescue nil }
      end

      def raises
        File.stat(FILE)
        raise "left by an exception"
      end

      def outer
        writes
        raises
      rescue RuntimeError
        @io.syswrite("y")
      end

      def each_one = 20.times { yield }
      def in_block = each_one { @io.syswrite("block") }
      def in_thread = 30.times { File.stat(FILE) }
      def naps = 2.times { sleep 0.05 }

      def in_fiber
        loop do
          2.times { File.stat(FILE) }
          Fiber.yield
        end
      end

      def fibers
        fiber = Fiber.new { in_fiber }
        10.times do
          @io.syswrite("fiber")
          fiber.resume
        end
      end

      def forks
        pid = fork do
          in_thread
          exit!
        end
        Process.wait(pid)
        @io.syswrite("forked")
      end

      # 10 samples and more. Without a tracer of samples, it makes no system call.
      def spins = 10_000_000.times { nil }

      def paths = PATHS.each { |path| 2.times { File.stat(path) rescue nil } }

      define_method("odd,\"name\"\n\e[31m") { 5.times { File.stat(FILE) } }

      def work
        stats
        outer
        in_block
        fails
        paths
        4.times.map { Thread.new { in_thread } }.each(&:join)
        fibers
        naps
        forks
        spins
        public_send("odd,\"name\"\n\e[31m")
      end
    end
  RUBY

  include_context "with a worker", work

  # Runs these commands at the same time while the process works once. Returns their JSON.
  def traced(*commands)
    started = tracing("syscalls", *commands)
    work_once(shop)
    results("syscalls", started)
  end

  # The sum of a figure over the rows of a function, by the name of the call.
  def sum(told, function, call, figure = "calls")
    told["rows"].select { |row| row["function"] == function && call.match?(row["call"]) }
                .sum { |row| row[figure] }
  end

  # stat(2) is another call in each version of glibc.
  stat = /\A(stat|newfstatat|statx)\z/

  # [function, call, how often]
  known = [["Shop#stats", stat, 100], ["Shop#writes", /\Awrite\z/, 50], ["Shop#outer", /\Awrite\z/, 1],
           ["Shop#raises", stat, 1], ["Shop#in_block", /\Awrite\z/, 0], ["Shop#each_one", /\Awrite\z/, 20],
           ["Shop#fails", stat, 7], ["Shop#fails", /\Amkdir(at)?\z/, 3], ["Shop#in_thread", stat, 120],
           ["Shop#in_fiber", stat, 20], ["Shop#fibers", /\Awrite\z/, 10], ["Shop#fibers", stat, 0],
           ["Shop#forks", /\A(clone3?|v?fork)\z/, 1], ["Shop#forks", stat, 0],
           ["Shop#odd,\"name\"\n\e[31m", stat, 5], ["Shop#work", stat, 0],
           ["Main#serve", /./, 0]].freeze

  define_method(:expect_known) do |told|
    counted = known.map { |function, call, _| [function, call, sum(told, function, call)] }
    expect(counted).to eq(known)
  end

  it "counts calls, errors and bytes of each function, for two tracers at once" do
    first, second = traced([], [])
    [first, second].each do |told|
      expect_known(told)
      expect(sum(told, "Shop#writes", /\Awrite\z/, "bytes")).to eq(200)
      fails = told["rows"].select { |row| row["function"] == "Shop#fails" && row["failed"].positive? }
      expect(fails.map { |row| row["errors"] }).to contain_exactly({"ENOENT" => 7}, {"EEXIST" => 3})
      # SIGCHLD. What the kernel reports as its result is the thread's old state.
      returns = told["rows"].select { |row| row["call"] == "rt_sigreturn" }
      expect(returns.map { |row| row["errors"] }.uniq - [{}]).to eq([])
      expect(told["rows"]).to all(include("total_ns" => be_between(0, 600_000_000_000)))
      expect(told["lost"]).to include("unread" => 0, "map_full" => 0, "untold" => be_positive)
      expect(told["not_covered"].join).to include("calls of threads that made no traced call",
                                                  Probescope::Tracing::Report::BEYOND_THE_END)
      expect(told["reach"]).to eq([Probescope::CLI.command("syscalls")::REACH])
    end
  end

  # At each sample the library reads clocks and sets a timer, and jobs read clocks, too. Ruby itself
  # sets a timer at a fork.
  it "has the library's own calls in rows of their own" do
    hot = probescope_start("hot", "-p", shop.pid, "-d", 600, "--by", "self", "--json")
    shop.await_on("sample__stats")
    (told,) = traced([])
    expect(hot.stop(:INT).exitstatus).to eq(0), hot.err
    expect_known(told)
    clocks = told["rows"].select { |row| row["call"] == "clock_gettime" }
    expect(clocks.map { |row| row.values_at("function", "file", "line") }).to eq([["(probescope)", nil, nil]])
    expect(sum(told, "(probescope)", /\A(gettid|timer_settime)\z/)).to be >= 20
    expect(sum(told, "Shop#spins", /\A(gettid|getpid|timer_settime)\z/)).to eq(0)
    expect(told["lost"]).to include("unread" => 0)
  end

  it "shows only calls that failed, or that were slow" do
    failed, slow = traced(["--failed"], ["--slower", "20ms"])
    expect(failed["rows"]).to all(include("failed" => be_positive))
    expect(sum(failed, "Shop#fails", /./, "failed")).to eq(10)
    expect(failed["rows"].map { |row| row["function"] }).not_to include("Shop#stats")
    naps = slow["rows"].select { |row| row["function"] == "Shop#naps" }
    expect(naps.sum { |row| row["calls"] }).to be >= 2
    expect(naps.sum { |row| row["total_ns"] }).to be >= 95_000_000
    expect(slow["rows"]).to all(include("longest_ns" => be >= 20_000_000))
    expect(slow["not_covered"]).to include("not covered: calls shorter than 20.0 ms")
  end

  it "shows the path of each call that takes one, and counts those that are cut" do
    (told,) = traced(["--files"])
    expect(sum(told, "Shop#stats", stat)).to eq(100)
    expect(sum(told, "Shop#writes", /./)).to eq(0)
    paths = told["rows"].select { |row| row["function"] == "Shop#paths" }
    # Two of the three differ in a byte that is no UTF-8.
    expect(paths.map { |row| row.values_at("path", "errors") })
      .to match_array([*["/nowhere/a,b\"\n\e[31m, \ufffd"] * 2, "/nowhere/#{"x" * 118}"]
                        .map { |path| [path, {"ENOENT" => 2}] })
    fails = told["rows"].select { |row| row["function"] == "Shop#fails" }
    expect(fails.map { |row| row.values_at("path", "errors") })
      .to contain_exactly(["/nowhere", {"ENOENT" => 7}], [@folder, {"EEXIST" => 3}])
    expect(told.values_at("cut_paths", "unread_paths")).to eq([2, 0])
    expect(told["not_covered"].join("\n")).to include("2 calls have a path that may be cut after 127 bytes")
  end

  it "prints a table" do
    told = probescope("syscalls", "-p", shop.pid, "-d", 1)
    expect(told.status.exitstatus).to eq(0), told.err
    expect(told.out).to match(/^syscalls of process #{shop.pid}, .*CPU/)
    expect(told.out).not_to include("also counted") # the interval ended by itself
    expect(told.err).to include("listens to every system call of the machine")
  end

  it "refuses lines of Ruby before it attaches" do
    told = probescope("syscalls", "-p", shop.pid, "--by", "line")
    expect(told.status.exitstatus).to eq(2)
    expect(told.err).to include("the lines of Ruby are not known to the kernel (process #{shop.pid})",
                                "try: the command without --by line")
    expect(shop.info.probes["function__here"]).to include(enabled: 0, state: :off)
    expect(shop.info.header[:switches]).to eq(0)
  end

  it "refuses rows of paths by line or by request, other rows, and what is no time" do
    expect(probescope("syscalls", "-p", 1, "--by", "file"))
      .to have_attributes(err: /--by takes line, and not "file"/, status: have_attributes(exitstatus: 2))
    expect(probescope("syscalls", "-p", 1, "--by", "line", "--files"))
      .to have_attributes(err: /--files takes no --by line/, status: have_attributes(exitstatus: 2))
    expect(probescope("syscalls", "-p", 1, "--by-request", "--files"))
      .to have_attributes(err: /--files takes no --by-request/, status: have_attributes(exitstatus: 2))
    expect(probescope("syscalls", "-p", 1, "--slower", "1"))
      .to have_attributes(err: /"1" is no time/, status: have_attributes(exitstatus: 2))
  end
end

# The thread of this process makes calls at three lines behind that of its function, and one at an
# instruction that no line table has.
RSpec.describe "syscalls --by line", :bpf do
  it "has a row for each line, and marks the lines of definitions, also those of Ruby beside Python" do
    python = host_target("--rows", 1, "--lines")
    ruby = host_target("--rows", 1)
    run = probescope("syscalls", "-p", python.pid, "-p", ruby.pid, "-d", 1, "--by", "line", "--by-pid",
                     "--json")
    expect(run).to be_success, run.err
    told = JSON.parse(run.out)
    expect(told).to fit_the_schema_of("syscalls")
    of_step = told["rows"].select { |row| row["function"] == "Parser#step0" }
    lines = of_step.to_h { |row| [row.values_at("pid", "call"), row.values_at("line", "line_is")] }
    expect(lines.size).to eq(of_step.size)
    calls = %w[getppid access write]
    expect(calls.map { |call| lines[[python.pid, call]] })
      .to eq([[11, "current"], [10, "definition"], [13, "current"]])
    expect(calls.map { |call| lines[[ruby.pid, call]] }).to eq([[10, "definition"]] * 3)
    one = ->(pid, call) { of_step.find { |row| row["pid"] == pid && row["call"] == call } }
    expect(one[python.pid, "access"]["errors"]).to eq("ENOENT" => one[python.pid, "access"]["calls"])
    expect(one[python.pid, "write"]["bytes"]).to eq(4 * one[python.pid, "write"]["calls"])
  end
end

# The places at which a program finds the function, and its name, are on pages that are not in memory.
RSpec.describe "syscalls of processes whose memory cannot be read", :bpf do
  unread = %w[record epoch stack frames name]

  def calls(told, pid, &block)
    told["rows"].select { |row| row["pid"] == pid && block.call(row) }.sum { |row| row["calls"] }
  end

  def traced(parts, *options)
    processes = parts.map { |part| host_target("--rows", 1, "--unread", part) }
    pids = processes.map(&:pid)
    run = probescope("syscalls", *pids.flat_map { |pid| ["-p", pid] }, "-d", 1, "--by-pid", "--json",
                     *options)
    expect(run).to be_success, run.err
    [pids, JSON.parse(run.out), run.err]
  end

  [[], ["--files"]].each do |options|
    rest = {full: "another one of its kind"} if options.any?
    it "has them in rows of an unknown function, and counts them #{options.join}", **rest.to_h do
      pids, told, err = traced([*unread, "none", "late"], *options)
      expect(told).to fit_the_schema_of("syscalls")
      accesses = pids.map do |pid|
        told["rows"].select { |row| row["pid"] == pid && row["call"] == "access" }
                    .map { |row| row["function"] }.uniq
      end
      # Those of "late" had no name when they were made.
      expect(accesses).to eq([*[["(unknown)"]] * unread.size, ["Parser#step0"], ["Parser#late"]])
      unknown = pids.sum { |pid| calls(told, pid) { |row| row["function"] == "(unknown)" } }
      expect(told["lost"]).to include("unread" => unknown, "map_full" => 0)
      expect(unknown).to be_positive
      expect(err).to include("#{unknown} events have no function: memory of the process could not be read")
      pids.each { |pid| expect(calls(told, pid) { |row| row["call"] == "access" }).to be_positive }
    end
  end
end
