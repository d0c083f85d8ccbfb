# frozen_string_literal: true

# Runs Ruby's own tests plain and with every probe attached, and prints the differences: rake suite.
require "fileutils"
require "open3"
require "tmpdir"
require "yaml"
require_relative "../spec/support/paths"
%w[await info child elf target bpf attacher processes].each do |name|
  require_relative "../spec/support/#{name}"
end
require "probescope/abi"

# Runs each of some files of test/ruby twice, and repeats each test that differs.
class RubySuite
  include Support::Processes

  # A run of one file that takes longer is ended, and is reported as ended.
  SECONDS = Integer(ENV.fetch("PROBESCOPE_SUITE_SECONDS", "900"))
  ALLOWED = File.join(__dir__, "ruby_suite.yml")
  LOGS = File.join(Support::ROOT, "tmp/suite")
  # All probes except those that fire at each event: with these, tests take longer than their own
  # limits.
  PROBES = %w[function__stats functions__all exception__stats exception__detail object__stats sample__stats
              backtrace__done gc__done gvl__wait stats__done].freeze
  # These two are not tests. A test that differs may pass when it is repeated; these may not.
  ENDING = "(end)"
  CRASHES = "(crashes)"

  # ruby: a path. sources: a directory with Ruby's sources, or with a directory for each version.
  # files: names or patterns such as "test_array"; without them, all of test/ruby.
  def initialize(ruby:, sources:, files: [])
    @ruby = ruby
    ask = "puts RUBY_VERSION, !!(defined?(RubyVM::YJIT) && RubyVM::YJIT.enabled?)"
    @version, @jit = IO.popen([Support.plain_env, ruby, "-e", ask], &:readlines).map(&:chomp)
    directories = [File.join(sources, "ruby-#{@version}"), sources]
    @sources = directories.map { |path| File.expand_path(path) }.find do |path|
      File.exist?(File.join(path, "test/runner.rb"))
    end
    raise "no sources of Ruby #{@version} in #{sources}" unless @sources

    all = Dir[File.join(@sources, "test/ruby/test_*.rb")].sort
    chosen = files.flat_map { |name| all.select { |path| File.fnmatch?(name, File.basename(path, ".rb")) } }
    @files = files.empty? ? all - left_out : chosen.uniq
    raise "no such tests in #{@sources}" if @files.empty?

    @totals = Hash.new(0)
  end

  # Returns {file => {test => [plain, attached]}} of the differences that are not allowed.
  def differing
    FileUtils.mkdir_p(LOGS)
    puts "Ruby #{@version}#{" with YJIT" if @jit == "true"}, #{@files.size} files"
    keeper = target("puts 'ready'; $stdout.flush; loop { sleep 0.02 }", ruby: @ruby).ready
    tracer = attacher(keeper, *PROBES, by_path: true)
    tracer.attached(within: 60)
    found = @files.to_h { |path| [File.basename(path, ".rb"), differences(path)] }
    found = found.reject { |_, tests| tests.empty? }
    tracer.puts("count")
    raise "no probe fired" unless Integer(tracer.await_line(/\Acount=(\d+)/)[1]).positive?

    found
  ensure
    stop_processes
  end

  # "suite: 4012 tests of 90 files, ...", for the end of the log.
  def totals
    counts = %i[tests files differ may repeated].map { |name| @totals[name] }
    format("suite: %d tests in %d files: %d differ, %d others may, %d passed when repeated", *counts)
  end

  private

  def differences(path)
    file = File.basename(path, ".rb")
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    plain, attached = [false, true].map { |with| Thread.new { results(path, with, []) } }.map(&:value)
    return cannot_run(file, plain) if plain.keys == [ENDING]

    differing = compare(plain, attached)
    may, rest = differing.partition { |test, _| allowed?(test) }.map(&:to_h)
    count(plain, may)
    seconds = Process.clock_gettime(Process::CLOCK_MONOTONIC) - began
    puts "#{file}: #{plain.size - 1} tests, #{rest.size} differ#{", #{may.size} may" if may.any?} " \
         "(#{seconds.round} s)"
    rest = repeated(file, path, rest)
    @totals[:differ] += rest.size
    rest.each do |test, (before, with)|
      puts "  differs: #{test}: #{before.inspect}, attached #{with.inspect}"
    end
    $stdout.flush
    rest
  end

  def cannot_run(file, plain)
    puts "skipped: #{file} of Ruby #{@version} cannot be run from an installed Ruby (#{plain[ENDING]})"
    {}
  end

  def compare(plain, attached)
    both = (plain.keys | attached.keys).to_h { |test| [test, [plain[test], attached[test]]] }
    both.reject { |_, (before, with)| before == with }
  end

  def count(plain, may)
    @totals[:files] += 1
    @totals[:tests] += plain.size - 1
    @totals[:may] += may.size
  end

  # Returns what still differs when the tests that differ run once more, alone. A difference in the
  # file's end or in crashes always counts.
  def repeated(file, path, differing)
    tests = differing.keys - [ENDING, CRASHES]
    return differing if tests.empty?

    plain, attached = [false, true].map { |with| results(path, with, tests) }
    again = compare(plain, attached)
    differing.keep_if { |test, _| !tests.include?(test) || again[test] }
    passed = tests - differing.keys
    @totals[:repeated] += passed.size
    passed.each { |test| puts "passed when repeated: suite: #{file}: #{test}" }
    again.slice(ENDING, CRASHES).merge(differing)
  end

  def allowed?(test)
    allowed.any? { |one| one.fetch("tests").any? { |pattern| File.fnmatch?(pattern, test) } }
  end

  def allowed = (@allowed ||= list.select { |one| one["tests"] })

  # Returns the files that run only on request, and the ends of the names of tests that never run.
  def left_out
    names = list.flat_map { |one| one.fetch("files", []) }
    names.map { |name| File.join(@sources, "test/ruby/#{name}.rb") }
  end

  def not_run = list.flat_map { |one| one.fetch("not_run", []) }

  # Returns the entries of ruby_suite.yml for this Ruby.
  def list
    @list ||= YAML.load_file(ALLOWED).select do |one|
      requirement = Gem::Requirement.new(*one.fetch("ruby", ">= 3.1").split(", "))
      requirement.satisfied_by?(Gem::Version.new(@version)) &&
        one.fetch("yjit", @jit == "true").to_s == @jit
    end
  end

  # Returns {"TestArray#test_at" => ".", ...}. tests: runs only these. A runner that dies leaves out
  # the remaining tests.
  def results(path, attached, tests)
    env = attached ? { "RUBYOPT" => "-r#{Support::AUTO}" } : {}
    names = not_run.flat_map { |name| ["-n", "!/#{name}\\z/"] }
    names += ["-n", "/\\A(?:#{tests.map { |test| Regexp.escape(test) }.join("|")})\\z/"] if tests.any?
    command = [@ruby, "-W0", "-I#{@sources}/tool/lib", "-I#{@sources}/test/lib", "-I#{@sources}/test",
               "#{@sources}/test/runner.rb", "--ruby=#{@ruby}", "-v", *names, path]
    out, status = Dir.mktmpdir("probescope") do |directory|
      Open3.capture2e(Support.plain_env.merge(env), "timeout", SECONDS.to_s, *command, chdir: directory)
    end
    out = out.scrub
    kind = "#{File.basename(path, ".rb")}.#{attached ? "attached" : "plain"}#{".again" if tests.any?}"
    File.write(File.join(LOGS, "#{kind}.log"), out)
    whole = { ENDING => ending(status), CRASHES => out.scan("[BUG]").size }
    outcomes(out).merge(whole.reject { |_, value| value == 0 })
  end

  # Each test has a line "[ 1/11] TestArray#test_at = 0.00 s". The test's own output stands before
  # the equals sign, and a failed test ends with " = F". A warning may follow a name directly
  # ("test_exit_action-e:4:in"), so a name ends before "/", ":" and "-". Names that differ only
  # after one of these count as one test: TestRequireLib has a test for each of some files that it
  # chooses at random. A file that existed before a test and not after it is one that Ruby's watcher
  # reads for one attach (decision 213), which is allowed. A file that a test leaves is a
  # difference.
  def outcomes(out)
    parts = out.split(%r{^\[ *\d+/\d+\] (\w+(?:::\w+)*#(?:"[^"\n]*"|[^\s#/:-]+))})
    parts.drop(1).each_slice(2).with_object({}) do |(test, rest), ends|
      match = rest.to_s.match(/\b[\d.]+ s(?: = (\S))?(?:Closed file descriptor.*)?$/)
      ends[test] = match[1] || "." if match
    end
  end

  # A failed test gives the runner a status of 1 or more, and is compared separately.
  def ending(status)
    return "SIG#{Signal.signame(status.termsig)}" if status.signaled?

    status.exitstatus == 124 ? "not done after #{SECONDS} s" : "ended"
  end
end
