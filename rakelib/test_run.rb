# frozen_string_literal: true

require "bundler"
require "fileutils"
require "open3"
require "rbconfig"
require_relative "../spec/support/turns"
require_relative "junit"

# One run of bin/test. LOGS/NAME.log has the output of each program, and LOGS/NAME.xml the results
# of RSpec. The output of a program is shown when the program ends, because several run in parallel.
class TestRun
  LOGS = File.expand_path("../tmp/test", __dir__)
  REPEATED = "#{LOGS}/repeated.txt".freeze # a line for each test that passed only when repeated
  MOST_REPEATED = 6
  # Lines of the output that are repeated in the totals: those of linters and of C tests, and why a
  # C test failed.
  TOLD = Regexp.union(/offenses|^core \(.*(failed|notes)|^memcheck|skipped/,
                      /^FAILED: |_test\.c:\d+: |runtime error: |Sanitizer: /)
  # sudo clears the environment. RSpec needs these variables of it.
  KEPT = /\A(PATH|LANG|CI|RUBY|PYTHON|JAEGER|PROMETHEUS|VMAGENT|BUNDLE_\w+|PROBESCOPE_\w+)\z/

  # Yields the run to a block that runs programs. Then prints their totals, and exits with 1 if a
  # program failed. root: whether RSpec runs as root, through sudo if necessary. env: further
  # environment variables for RSpec.
  def self.open(root: true, env: {})
    run = new(root, env)
    yield run
    run.finish
  end

  def initialize(root, env)
    FileUtils.rm_rf(LOGS)
    FileUtils.mkdir_p(LOGS)
    FileUtils.rm_f("tmp/spec-status.txt")
    # Bundler's variables are left out. In a copy of the checkout they would load the library of the
    # original checkout.
    @env = Bundler.original_env.merge("PROBESCOPE_REPEATED" => REPEATED, **env)
    @sudo = root && !Process.uid.zero? && system("sudo", "true")
    @began = now
    @printing = Mutex.new
    @failed = []
    @told = []
    @python = []
    @results = {}
  end

  def beside(*parts) = parts.map { |part| Thread.new(&part) }.each(&:join)

  # Runs a program that is not repeated on failure. told: pattern of the lines of its output that go
  # into the totals.
  def check(name, *command, told: TOLD)
    @failed << name unless program(name, *command)
    @told.concat(output(name).lines(chomp: true).grep(told))
  end

  # Runs Python's linters, and compiles and installs the package.
  def prepare_python
    check("python-prepare", "nox", "--session", "lint", "tests", "--", "prepare",
          told: /offenses|Success|FAILED|skipped/)
  end

  # Runs pytest with the package that prepare_python has installed.
  def prepared_python
    return if output("python-prepare").include?("skipped: pytest")

    python("nox", "--reuse-existing-virtualenvs", "--no-install", "--session", "tests")
  end

  # Runs a program that prints totals of its own: pytest.
  def python(*command)
    @failed << "python" unless program("python", *command)
    totals = output("python")[/^== totals.*/m] || "pytest did not finish (#{LOGS}/python.log)"
    @python = totals.lines(chomp: true).grep_v(/\Anox > /)
  end

  # Runs RSpec with these arguments, and repeats failed examples.
  def specs(name, *arguments, directory: ".", alone: false)
    once(name, *arguments, directory: directory, alone: alone)
    again(name, directory: directory)
  end

  def once(name, *arguments, directory: ".", alone: false)
    @results[name] = nil
    @failed << name unless rspec(name, *arguments, directory: directory, alone: alone)
  end

  # Repeats up to MOST_REPEATED failed examples, alone. An example that failed because the machine was busy
  # passes then; a broken one fails again.
  def again(name, directory: ".")
    return unless @failed.include?(name) && (1..MOST_REPEATED).cover?(@results[name]&.failed&.size)

    good = rspec("#{name}.again", "--only-failures", directory: directory, alone: true)
    result = @results.delete("#{name}.again")
    repeated(name, result) if result
    @failed.delete(name) if good
  end

  def finish
    # Files that root has written get the user as their owner.
    system("sudo", "chown", "-R", "#{Process.uid}:#{Process.gid}", "tmp") if @sudo
    puts "== totals (Ruby #{RUBY_VERSION}, #{bpftrace})", @told
    tell_repeated
    puts "FAILED: #{@failed.join(" ")}" if @failed.any?
    tell_specs unless @results.empty?
    puts(@python.map { |line| line.delete_prefix("== totals ") })
    exit false if @failed.any?
  end

  private

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  def output(name) = File.read("#{LOGS}/#{name}.log", encoding: "UTF-8").scrub

  # The output goes to a file and not to a pipe, because a process that is left behind would keep a
  # pipe open.
  def program(name, *command, directory: ".", env: @env)
    log = "#{LOGS}/#{name}.log"
    streams = { in: File::NULL, out: log, err: %i[child out] }
    pid = spawn(env, *command, unsetenv_others: true, chdir: directory, **streams)
    status = Process.wait2(pid).last
    status.success?
  ensure
    # This also runs on a timeout and on Ctrl-C.
    show(name, status ? status.to_s[/exit \d+|SIG\w+/] : "interrupted")
  end

  def show(name, how)
    @printing.synchronize do
      puts output(name), "== #{name}: #{how}, #{(now - @began).round} s since the start"
      $stdout.flush
    end
  end

  def rspec(name, *arguments, directory:, alone:)
    report = "#{LOGS}/#{name}.xml"
    # A run that is alone holds the exclusive lock, so its examples must not request a lock.
    env = alone ? @env.except("PROBESCOPE_TURNS") : @env
    command = [*as_root(env), RbConfig.ruby, "-S", "bundle", "exec", "rspec", "--format", "documentation",
               "--format", "RspecJunitFormatter", "--out", report, *arguments]
    start = -> { program(name, *command, directory: directory, env: env) }
    good = alone ? Support::Turns.alone(&start) : start.call
    result = JUnit.read(report) if File.exist?(report)
    # If RSpec failed without a failed example, it did not start or did not finish.
    @results[name] = good || result&.failed&.any? ? result : nil
    good
  end

  def as_root(env)
    return [] unless @sudo

    ["sudo", "env", *env.filter_map { |name, value| "#{name}=#{value}" if name.match?(KEPT) }]
  end

  # Debian installs bpftrace in a directory that is not in a user's PATH. If there is no bpftrace,
  # tests that need BPF say so.
  def bpftrace = `PATH=$PATH:/usr/sbin bpftrace --version 2>/dev/null || echo no bpftrace`.strip

  def repeated(name, again)
    passed = @results[name].failed - again.failed
    File.write(REPEATED, passed.map { |example| "#{example}\n" }.join, mode: "a")
    @results[name].failed = again.failed
  end

  # Prints the repeated tests in the totals, and adds them to docs/ci/flaky.md.
  def tell_repeated
    lines = File.exist?(REPEATED) ? File.readlines(REPEATED, chomp: true) : []
    puts(lines.map { |line| "passed when repeated: #{line}" })
    Open3.capture2(".ci/flaky", stdin_data: lines.map { |line| "Ruby #{RUBY_VERSION}: #{line}\n" }.join)
  end

  # Prints one line for all groups, in the form of RSpec's.
  def tell_specs
    finished = @results.compact
    puts((@results.keys - finished.keys).map { |name| "RSpec did not finish (#{LOGS}/#{name}.log)" })
    puts(finished.values.flat_map(&:failed).map { |example| "FAILED #{example}" })
    puts finished.values.reduce(:+) if finished.any?
  end
end
