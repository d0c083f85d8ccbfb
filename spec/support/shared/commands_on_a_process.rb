# frozen_string_literal: true

# The commands on a real process that does known work: nothing until they are attached, then all of it. `language`: {suffix:,
# work: a program that does 1000 calls, 500 raises and 2000 allocations on SIGUSR1, burn: one that burns CPU in a function of that
# name, separator: between class and method, error: the type that is raised, allocated: the class of the objects}.
RSpec.shared_examples "a process under the commands" do |language|
  separator = language.fetch(:separator)

  define_method(:work) { language.fetch(:work) }

  def script(language, text)
    @folder ||= Dir.mktmpdir
    File.join(@folder, "worker#{language.fetch(:suffix)}").tap { |path| File.write(path, text) }
  end

  after { FileUtils.rm_rf(@folder) if @folder }

  def line_of(text) = work.lines.index { |line| line.include?(text) } + 1

  # The rows of a command during which the process did its work once.
  define_method(:rows) do |command, probe|
    path = script(language, work)
    process = target(path, env: {"PROBESCOPE_FUNCTIONS" => "#{@folder}/**"}).ready
    skip_unless_served(process, probe)
    running = probescope_start(command, "-p", process.pid, "-d", 600, "--json", "--top", 0)
    process.await_on(probe)
    flushes = process.info.header[:flushes]
    await("the interval") { process.info.header[:flushes] >= flushes + 2 }
    process.signal(:USR1)
    process.await_line(/\Aworked$/)
    expect(running.stop(:INT).exitstatus).to eq(0), running.err
    JSON.parse(running.out)["rows"].select { |row| row["file"].to_s.include?("/worker#{language.fetch(:suffix)}") }
  end

  it "calls: every call, and none more" do
    counted = rows("calls", "function__stats").to_h { |row| [row["function"], row["calls"]] }
    expect(counted).to include(%w[call fail allocate].map { |name| "Worker#{separator}#{name}" }.zip([1000, 500, 2000]).to_h)
  end

  it "exceptions: every raise, with its line" do
    row = rows("exceptions", "exception__stats").first
    expect(row).to include("type" => language.fetch(:error), "line" => line_of("raise "), "count" => 500,
                           "function" => "Worker#{separator}fail")
    expect(row["backtrace_cost_ns"]).to be >= 0
  end

  it "alloc: every object, with its line" do
    found = rows("alloc", "object__stats").select { |row| row["line"] == line_of(language.fetch(:allocates)) }.max_by { |row| row["count"] }
    expect(found).to include("count" => 2000)
    expect(found["class"]).to eq(language.fetch(:allocated)) if language.fetch(:allocated)
    expect(found["bytes"]).to be >= 2000 * 40
  end

  it "hot: the function that burns, first" do
    burning = target(script(language, language.fetch(:burn))).ready
    skip_unless_served(burning, "sample__stats")
    rows = probescope("hot", "-p", burning.pid, "-d", 1, "--json").json["rows"]
    expect(rows.find { |row| row["function"].to_s.end_with?("burn") }["total_share"]).to be > 0.9
  end
end
