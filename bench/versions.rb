# frozen_string_literal: true

# Compares this checkout with another one, which is compiled, too: the instructions without a tracer,
# and what a tracer adds to a call of a function. Rewrites its section of docs/performance.md.
#
#   OTHER=/path/to/checkout bundle exec rake bench:versions   # some five minutes on an idle machine, as root
#
# The checkouts take turns, each with its own library and its own benchmarks. PYTHON=/path/to/python:
# that Python.
require "open3"
%w[paths await child python].each { |name| require_relative "../spec/support/#{name}" }
require_relative "performance_page"
require_relative "statistics"

class Versions
  include Statistics

  TURNS = Integer(ENV.fetch("TURNS", "8"))
  ENVIRONMENT = {"PYTHONPATH" => "python", "ROWS" => "function__stats|ruby-prof"}.freeze
  # {what: [command, pattern of the loaded process's instructions]}
  IDLE = {"Ruby" => [%w[bundle exec ruby bench/idle.rb], /^- (.*): .* probescope, ([\d.]+) with it loaded/],
          "Python" => [[Support::Python.interpreter, "bench/idle.py"],
                       /^(Python \S+): .* probescope, ([\d.]+) with it loaded/]}.freeze
  PYTHON_CALL = <<~PYTHON
    import sys
    sys.path.insert(0, "bench")
    import python_overhead as bench
    bench.probescope.install()
    listener = bench.Listener("function__stats")
    states = {"plain": bench.nothing, "`function__stats` traced": lambda: listener, "cProfile": bench.profiled}
    bench.table("a call", bench.cost(bench.calls, 50_000, bench.loop), states, 9)
    listener.finish()
  PYTHON
  # Both print the same row: ns, and what the tracer adds.
  CALLS = {
    "Ruby #{RUBY_VERSION}" => %w[bundle exec ruby bench/overhead.rb call],
    "CPython #{Support::Python.full_version}" => [Support::Python.interpreter, "-c", PYTHON_CALL]
  }.freeze
  ADDED = /^\| `function__stats` traced[^|]*\| [\d.]+ \| ([\d.]+)/

  def initialize(other)
    @checkouts = {this: Support::ROOT, other: other}
    @commits = @checkouts.transform_values { |path| PerformancePage.commit(path) }
  end

  def section
    load = File.read("/proc/loadavg").split.first
    idle = IDLE.flat_map { |language, (command, pattern)| instructions(language, command, pattern) }
    calls = CALLS.map { |name, command| call(name, command) }
    <<~MARKDOWN
      <!-- bench/versions.rb -->
      ## Beside an earlier version

      Commit #{@commits[:this]} ("this") and commit #{@commits[:other]} ("earlier"), in turns on one
      machine, load average #{load} at the start. Written by `rake bench:versions`.

      | instructions without a tracer, probescope loaded | earlier | this | ratio |
      |---|---|---|---|
      #{idle.join("\n")}

      What `function__stats` adds to a call of an empty function and its return, in ns: the least of
      #{TURNS} turns, and their median.

      | | earlier, least | this, least | difference | earlier, median | this, median | difference |
      |---|---|---|---|---|---|---|
      #{calls.join("\n")}
      <!-- end of bench/versions.rb -->
    MARKDOWN
  end

  private

  def instructions(language, command, pattern)
    found = @checkouts.transform_values { |path| run(path, command).scan(pattern).to_h }
    found[:other].map do |work, other|
      this = found[:this].fetch(work)
      work = "#{language}: #{work}" unless work.start_with?(language)
      "| #{work} | #{other} | #{this} | #{format("%.4f", Float(this) / Float(other))} |"
    end
  end

  def call(name, command)
    found = @checkouts.transform_values { [] }
    TURNS.times do |turn|
      warn "bench: a traced call, #{name}, turn #{turn + 1} of #{TURNS} ..."
      @checkouts.to_a.rotate(turn).each { |of, path| found[of] << Float(run(path, command)[ADDED, 1]) }
    end
    cells = [:min.to_proc, method(:median)].flat_map do |middle|
      other, this = found.values_at(:other, :this).map(&middle)
      [other, this, this - other].map { |ns| format("%.1f", ns) }
    end
    "| #{name} | #{cells.join(" | ")} |"
  end

  # Each checkout has its own bundle.
  def run(path, command)
    out, errors, status = Open3.capture3(Support.plain_env.merge(ENVIRONMENT), *command,
                                         chdir: path, unsetenv_others: true)
    status.success? ? out : raise("#{command.first(4).join(" ")} in #{path} failed:\n#{errors}#{out}")
  end
end

if $PROGRAM_NAME == __FILE__
  PerformancePage.write("bench/versions.rb", Versions.new(ENV.fetch("OTHER")).section)
end
