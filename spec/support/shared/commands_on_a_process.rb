# frozen_string_literal: true

# The commands on a real process that does known work, all of it after the attach. `language`:
# {suffix:, work: a program that does 1000 calls, 500 raises and 2000 allocations on SIGUSR1, then
# three times `tell`, which formats a backtrace with the method in `formatted`, and `nap` of 20 ms,
# burn: a program that uses CPU in a function of that name, short: one that works 1000 times on a
# line of stdin and ends, deaf: one that lets no hook in, separator: between class and method,
# error: the type that is raised, allocated: the class of the objects}.
RSpec.shared_examples "a process under the commands" do |language|
  separator = language.fetch(:separator)

  define_method(:work) { language.fetch(:work) }

  def script(language, text)
    @folder ||= Dir.mktmpdir
    File.join(@folder, "worker#{language.fetch(:suffix)}").tap { |path| File.write(path, text) }
  end

  after { FileUtils.rm_rf(@folder) if @folder }

  def line_of(text) = work.lines.index { |line| line.include?(text) } + 1

  # Traces the process while it does its work once. Returns the JSON objects of each command, by its
  # name. commands: {name => [probe, option...]}.
  define_method(:told) do |commands, &whole|
    path = script(language, work)
    process = target(path, env: {"PROBESCOPE_FUNCTIONS" => "#{@folder}/**"}).ready
    commands = commands.reject { |_, (probe)| process.info.state(probe) == :unsupported }
    running = commands.to_h do |name, (_, *options)|
      [name, probescope_start(name, "-p", process.pid, "-d", 600, "--json", *options)]
    end
    process.await_on(*commands.values.map(&:first))
    flushes = process.info.header[:flushes]
    await("the interval") { process.info.header[:flushes] >= flushes + 2 }
    # Events before all hooks are in belong to no line.
    await("a line of stat", within: 60) { running["stat"].out.include?("\n") } if running["stat"]
    process.signal(:USR1)
    process.await_line(/\Aworked$/)
    whole&.call(process, running)
    running.transform_values do |command|
      expect(command.stop(:INT).exitstatus).to eq(0), command.err
      command.out.lines.map { |line| JSON.parse(line) }
    end
  end

  # Returns the rows of the program's own file, for a command with a table.
  define_method(:rows_of) do |lines|
    lines.last["rows"].select { |row| row["file"].to_s.include?("/worker#{language.fetch(:suffix)}") }
  end

  define_method(:rows) do |commands|
    told(commands.transform_values { |probe| [probe, "--top", 0] }).transform_values do |lines|
      rows_of(lines)
    end
  end

  it "calls, exceptions and alloc: count every call, raise and object, and no more" do
    found = rows("calls" => "function__stats", "exceptions" => "exception__stats", "alloc" => "object__stats")
    counted = found["calls"].to_h { |row| [row["function"], row["calls"]] }
    expect(counted).to include(
      %w[call fail allocate].map { |name| "Worker#{separator}#{name}" }.zip([1000, 500, 2000]).to_h
    )

    row = found["exceptions"].find { |one| one["function"] == "Worker#{separator}fail" }
    expect(row).to include("type" => language.fetch(:error), "line" => line_of("raise "), "count" => 500)
    expect(row["backtrace_cost_ns"]).to be >= 0

    next unless found["alloc"]

    at = found["alloc"].select { |one| one["line"] == line_of(language.fetch(:allocates)) }.max_by do |one|
      one["count"]
    end
    expect(at).to include("count" => 2000)
    expect(at["class"]).to eq(language.fetch(:allocated)) if language.fetch(:allocated)
    expect(at["bytes"]).to be >= 2000 * 40
  end

  it "slow, backtraces, stat and flow: show slow calls, formatted backtraces, totals, and the calls" do
    found = told("slow" => ["function__slow10ms"], "backtraces" => ["backtrace__done"],
                 "stat" => ["stats__done"],
                 "flow" => ["function__entry", "--function", "Worker#{separator}nap"]) do |process, running|
      flushes = process.info.header[:flushes]
      await("the second of the work") { process.info.header[:flushes] >= flushes + 2 }
      await("its line", within: 60) do
        running["stat"].out.lines.sum { |line| JSON.parse(line)["calls"] } >= 1500
      end
    end
    naps = rows_of(found["slow"]).select { |row| row["function"] == "Worker#{separator}nap" }
    expect(naps.map { |row| row["outcome"] }).to eq(%w[returned] * 3)
    expect(naps).to all(include("self_ns" => be > 15_000_000, "elapsed_ns" => be > 15_000_000,
                                "line" => line_of("nap")))

    text = rows_of(found["backtraces"]).find { |row| row["call"] == language.fetch(:formatted) }
    expect(text).to include("count" => 3, "line" => line_of(language.fetch(:asks)),
                            "function" => "Worker#{separator}tell", "type" => language.fetch(:error),
                            "total_ns" => be_positive)

    sums = %w[calls raises allocations].to_h { |name| [name, found["stat"].sum { |line| line[name] || 0 }] }
    expect(sums).to include("calls" => be >= 1506, "raises" => be >= 503)

    calls = found["flow"].select { |line| line["function"] == "Worker#{separator}nap" }
    expect(calls.map { |line| line["event"] }).to eq(%w[call] * 3), found["flow"].inspect
  end

  # Whether this many bpftraces trace the process and wait for events. They wait when all their
  # probes are attached.
  def attached?(pid, tracers)
    found = Dir["/proc/[0-9]*/cmdline"].select do |path|
      words = File.read(path).split("\0")
      words.first.to_s.end_with?("bpftrace") && words.each_cons(2).include?(["-p", pid.to_s]) &&
        File.read(path.sub("cmdline", "wchan")).match?(/epoll|ep_poll/)
    rescue SystemCallError
      false
    end
    found.size == tracers
  end

  it "calls: shows the counts of a process that ended before its first flush" do
    process = target(script(language, language.fetch(:short)), stdin: true).ready
    command = probescope_start("calls", "-p", process.pid, "-d", 600, "--all", "--json")
    # The kernel raises a semaphore before bpftrace's program is attached. --all needs one more
    # bpftrace.
    await("the attach", within: 60) { attached?(process.pid, 2) }
    before = process.info.header[:flushes]
    await("the begin of an interval") { process.info.header[:flushes] > before }
    process.puts("go")
    expect(command.wait.exitstatus).to eq(0), command.err
    rows = rows_of([JSON.parse(command.out)])
    calls = rows.find { |row| row["function"].end_with?("work") }&.fetch("calls")
    expect(calls).to eq(1000), command.out
    expect(command.err)
      .to include("process #{process.pid} ended while it was traced; this is what was told until then")
  end

  it "calls: exit with status 1 when the process ended before its hooks were in" do
    process = target(script(language, language.fetch(:deaf))).ready
    command = probescope_start("calls", "-p", process.pid, "-d", 600, "--all")
    await("the attach", within: 60) do
      %w[stats__done function__stats].all? { |name| process.info.semaphore(name).positive? }
    end
    process.signal(:KILL)
    expect(command.wait.exitstatus).to eq(1)
    expect(command.err).to include("nothing is known of process #{process.pid}, which is left out: " \
                                   "it ended before its hooks were in")
    expect(command.out).to be_empty
  end

  it "hot: shows the function that burns CPU first" do
    burning = target(script(language, language.fetch(:burn))).ready
    skip_unless_served(burning, "sample__stats")
    rows = probescope("hot", "-p", burning.pid, "-d", 1, "--json").json["rows"]
    expect(rows.find { |row| row["function"].to_s.end_with?("burn") }["total_share"]).to be > 0.9
  end
end
