# frozen_string_literal: true

require "bundler"
require "fileutils"
require "open3"
require "rbconfig"
require_relative "../spec/support/turns"
require_relative "junit"

# One run of bin/test. What its programs print is in LOGS/NAME.log, and RSpec's results are in
# LOGS/NAME.xml. Programs that run side by side are shown when they end.
class TestRun
  LOGS = File.expand_path("../tmp/test", __dir__)
  REPEATED = "#{LOGS}/repeated.txt".freeze # a line for each test that passed when it was repeated
  MOST_REPEATED = 3
  # Totals of linters and of C tests.
  TOLD = /offenses|^core \(.*(failed|notes)|^memcheck|skipped/
  # sudo clears the environment. Of it, RSpec needs these.
  KEPT = /\A(PATH|LANG|CI|RUBY|PYTHON|JAEGER|PROMETHEUS|VMAGENT|BUNDLE_\w+|PROBESCOPE_\w+)\z/

  # The block runs programs. Then come their totals; aborts where one failed.
  # root: through sudo where somebody else asks. env: what RSpec is told beside.
  def self.open(root: true, env: {})
    run = new(root, env)
    yield run
    run.finish
  end

  def initialize(root, env)
    FileUtils.rm_rf(LOGS)
    FileUtils.mkdir_p(LOGS)
    FileUtils.rm_f("tmp/spec-status.txt")
    # Without Bundler's variables: in a copy of the checkout they would lead to the library here.
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

  # A program that is not repeated. Of what it says, the totals have the lines with these words.
  def check(name, *command, told: TOLD)
    @failed << name unless program(name, *command)
    @told.concat(output(name).lines(chomp: true).grep(told))
  end

  # Python's linters, and the package, compiled.
  def prepare_python
    check("python-prepare", "nox", "--session", "lint", "tests", "--", "prepare",
          told: /offenses|Success|FAILED|skipped/)
  end

  # pytest with what prepare_python has installed.
  def prepared_python
    return if output("python-prepare").include?("skipped: pytest")

    python("nox", "--reuse-existing-virtualenvs", "--no-install", "--session", "tests")
  end

  # One that has totals of its own: pytest's.
  def python(*command)
    @failed << "python" unless program("python", *command)
    totals = output("python")[/^== totals.*/m] || "pytest did not finish (#{LOGS}/python.log)"
    @python = totals.lines(chomp: true).grep_v(/\Anox > /)
  end

  # RSpec with these arguments, and once more what failed.
  def specs(name, *arguments, directory: ".", alone: false)
    once(name, *arguments, directory: directory, alone: alone)
    again(name, directory: directory)
  end

  def once(name, *arguments, directory: ".", alone: false)
    @results[name] = nil
    @failed << name unless rspec(name, *arguments, directory: directory, alone: alone)
  end

  # Up to three examples that failed run once more, alone: what a busy machine spoilt passes then,
  # and what is broken fails again.
  def again(name, directory: ".")
    return unless @failed.include?(name) && (1..MOST_REPEATED).cover?(@results[name]&.failed&.size)

    good = rspec("#{name}.again", "--only-failures", directory: directory, alone: true)
    result = @results.delete("#{name}.again")
    repeated(name, result) if result
    @failed.delete(name) if good
  end

  def finish
    # What root's run wrote belongs to whoever owns the checkout.
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

  # A file and no pipe: a process that is left behind would keep a pipe open.
  def program(name, *command, directory: ".", env: @env)
    log = "#{LOGS}/#{name}.log"
    streams = { in: File::NULL, out: log, err: %i[child out] }
    pid = spawn(env, *command, unsetenv_others: true, chdir: directory, **streams)
    status = Process.wait2(pid).last
    status.success?
  ensure
    # Also where the time is over, or somebody pressed Ctrl-C.
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
    # What has the room does not ask for it.
    env = alone ? @env.except("PROBESCOPE_TURNS") : @env
    command = [*as_root(env), RbConfig.ruby, "-S", "bundle", "exec", "rspec", "--format", "documentation",
               "--format", "RspecJunitFormatter", "--out", report, *arguments]
    start = -> { program(name, *command, directory: directory, env: env) }
    good = alone ? Support::Turns.alone(&start) : start.call
    result = JUnit.read(report) if File.exist?(report)
    # A failure without a failed example: RSpec did not begin, or did not end.
    @results[name] = good || result&.failed&.any? ? result : nil
    good
  end

  def as_root(env)
    return [] unless @sudo

    ["sudo", "env", *env.filter_map { |name, value| "#{name}=#{value}" if name.match?(KEPT) }]
  end

  # Debian has it where a user's PATH does not look. Without it all that needs BPF says so.
  def bpftrace = `PATH=$PATH:/usr/sbin bpftrace --version 2>/dev/null || echo no bpftrace`.strip

  def repeated(name, again)
    passed = @results[name].failed - again.failed
    File.write(REPEATED, passed.map { |example| "#{example}\n" }.join, mode: "a")
    @results[name].failed = again.failed
  end

  # In the totals, and as docs/ci/flaky.md's next lines.
  def tell_repeated
    lines = File.exist?(REPEATED) ? File.readlines(REPEATED, chomp: true) : []
    puts(lines.map { |line| "passed when repeated: #{line}" })
    Open3.capture2(".ci/flaky", stdin_data: lines.map { |line| "Ruby #{RUBY_VERSION}: #{line}\n" }.join)
  end

  # One line for all groups, as RSpec has it.
  def tell_specs
    finished = @results.compact
    puts((@results.keys - finished.keys).map { |name| "RSpec did not finish (#{LOGS}/#{name}.log)" })
    puts(finished.values.flat_map(&:failed).map { |example| "FAILED #{example}" })
    puts finished.values.reduce(:+) if finished.any?
  end
end
