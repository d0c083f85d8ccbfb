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

  # What each command says about the time during which the process did its work once, by the command's name.
  define_method(:rows) do |commands|
    path = script(language, work)
    process = target(path, env: {"PROBESCOPE_FUNCTIONS" => "#{@folder}/**"}).ready
    commands = commands.reject { |_, probe| process.info.state(probe) == :unsupported }
    running = commands.to_h { |name, _| [name, probescope_start(name, "-p", process.pid, "-d", 600, "--json", "--top", 0)] }
    process.await_on(*commands.values)
    flushes = process.info.header[:flushes]
    await("the interval") { process.info.header[:flushes] >= flushes + 2 }
    process.signal(:USR1)
    process.await_line(/\Aworked$/)
    running.transform_values do |command|
      expect(command.stop(:INT).exitstatus).to eq(0), command.err
      JSON.parse(command.out)["rows"].select { |row| row["file"].to_s.include?("/worker#{language.fetch(:suffix)}") }
    end
  end

  it "calls, exceptions and alloc: every call, every raise, every object, and none more" do
    found = rows("calls" => "function__stats", "exceptions" => "exception__stats", "alloc" => "object__stats")
    counted = found["calls"].to_h { |row| [row["function"], row["calls"]] }
    expect(counted).to include(%w[call fail allocate].map { |name| "Worker#{separator}#{name}" }.zip([1000, 500, 2000]).to_h)

    row = found["exceptions"].first
    expect(row).to include("type" => language.fetch(:error), "line" => line_of("raise "), "count" => 500,
                           "function" => "Worker#{separator}fail")
    expect(row["backtrace_cost_ns"]).to be >= 0

    next unless found["alloc"]

    at = found["alloc"].select { |one| one["line"] == line_of(language.fetch(:allocates)) }.max_by { |one| one["count"] }
    expect(at).to include("count" => 2000)
    expect(at["class"]).to eq(language.fetch(:allocated)) if language.fetch(:allocated)
    expect(at["bytes"]).to be >= 2000 * 40
  end

  it "hot: the function that burns, first" do
    burning = target(script(language, language.fetch(:burn))).ready
    skip_unless_served(burning, "sample__stats")
    rows = probescope("hot", "-p", burning.pid, "-d", 1, "--json").json["rows"]
    expect(rows.find { |row| row["function"].to_s.end_with?("burn") }["total_share"]).to be > 0.9
  end
end
