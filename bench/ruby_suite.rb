# frozen_string_literal: true

# Ruby's own tests, run plain and with every probe attached, and what differs: rake suite.
require "fileutils"
require "open3"
require "yaml"
require_relative "../spec/support/paths"
%w[await info child elf target bpf attacher processes].each { |name| require_relative "../spec/support/#{name}" }
require "probescope/abi"

# One run of each kind of some files of test/ruby.
class RubySuite
  include Support::Processes

  # Each test takes long enough to be told from one that hangs.
  SECONDS = 900
  ALLOWED = File.join(__dir__, "ruby_suite.yml")
  # Probes that switch others, and those of every event, which would take longer than all tests.
  PROBES = %w[function__stats functions__all exception__stats exception__detail object__stats sample__stats backtrace__done gc__done
              gvl__wait stats__done].freeze

  # ruby, sources: paths. files: names like "test_array"; none: all of test/ruby.
  def initialize(ruby:, sources:, files: [])
    @ruby = ruby
    @sources = File.expand_path(sources)
    all = Dir[File.join(@sources, "test/ruby/test_*.rb")].sort
    @files = files.empty? ? all : all.select { |path| files.include?(File.basename(path, ".rb")) }
    raise "no tests of Ruby's in #{@sources}" if @files.empty?
  end

  # {file => {test => [plain, attached]}} of what differs and may not.
  def differing
    keeper = target("puts 'ready'; $stdout.flush; loop { sleep 0.02 }", ruby: @ruby).ready
    tracer = attacher(keeper, *PROBES, by_path: true)
    tracer.attached(within: 60)
    found = @files.to_h { |path| [File.basename(path, ".rb"), differences(path)] }.reject { |_, tests| tests.empty? }
    tracer.puts("count")
    raise "no probe fired" unless Integer(tracer.await_line(/\Acount=(\d+)/)[1]).positive?

    found
  ensure
    stop_processes
  end

  private

  def differences(path)
    plain = results(path, {})
    attached = results(path, { "RUBYOPT" => "-r#{Support::AUTO}" })
    puts "#{File.basename(path)}: #{plain.size} tests, #{attached.size} attached"
    (plain.keys | attached.keys).to_h { |test| [test, [plain[test], attached[test]]] }
                                .reject { |test, (before, with)| before == with || allowed?(test) }
  end

  def allowed?(test) = allowed.any? { |one| one.fetch("tests").any? { |pattern| File.fnmatch?(pattern, test) } }
  def allowed = @allowed ||= YAML.load_file(ALLOWED)

  # {"TestArray#test_at" => "."}; a runner that dies leaves its tests out, and "(end)" says how it ended.
  def results(path, env)
    command = [@ruby, "-W0", "-I#{@sources}/tool/lib", "-I#{@sources}/test/lib", "-I#{@sources}/test", "#{@sources}/test/runner.rb",
               "--ruby=#{@ruby}", "-v", path]
    out, status = Open3.capture2e(Support.plain_env.merge(env), "timeout", SECONDS.to_s, *command, chdir: @sources)
    ends = out.scrub.scan(/^(?:\[[^\]]*\] )?(\S+#test\S*) = [\d.]+ s(?: = (\w))?/)
    raise "no test of #{path} ran:\n#{out}" if ends.empty? && env.empty?

    ends.each { |end_of_test| end_of_test[1] ||= "." }.to_h.merge("(end)" => status.exitstatus || status.termsig)
  end
end
