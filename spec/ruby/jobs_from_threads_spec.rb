# frozen_string_literal: true

require_relative "../../bench/soak"
require_relative "../spec_helper"

# The watcher is not a Ruby thread. This is how it makes Ruby run a job.
RSpec.describe "jobs registered by a thread without the VM lock", :slow do
  before(:context) { skip "of another Ruby: 3.1 and 3.2" if RUBY_VERSION >= "3.3" }

  def library(name, *options)
    directory = FileUtils.mkdir_p(File.join(Support::ROOT, "tmp", "ruby-#{RUBY_VERSION}")).first
    path = File.join(directory, "#{name}.so")
    tool("cc", "-shared", "-fPIC", "-O2", "-D_GNU_SOURCE", "-fno-strict-aliasing", *options, "-o", path,
         File.join(Support::ROOT, "spec/support/#{name}.c"), "-ldl", "-lpthread")
    path
  end

  def storm(program)
    headers = RbConfig::CONFIG.values_at("rubyhdrdir", "rubyarchhdrdir") +
              %w[ext/ruby ext/core].map { |path| "#{Support::ROOT}/#{path}" }
    extension = library("job_storm", *headers.map { |path| "-I#{path}" })
    target("require '#{extension}'\n#{program}", loaded: false)
  end

  def result(process) = JSON.parse(process.await_line(/\A(\{.*)/, within: 120)[1], symbolize_names: true)

  # The storm must find the fault that it tests for: functions called with another function's
  # argument, called twice, or never called.
  it "disturb other jobs when rb_postponed_job_register_one() registers them" do
    process = storm(<<~RUBY)
      require "json"
      $stdout.sync = true
      25.times do
        figures = JobStorm.run(:register_one, 4) { Object.new }
        break puts(figures.to_json) if figures[:wrong] > 0 || figures[:theirs] != figures[:registered]
      end
    RUBY
    found = begin
      result(process)
    rescue RuntimeError
      raise unless process.wait.signaled?

      {wrong: 1, theirs: 0, registered: 0} # it crashed because it called an invalid address
    end
    expect(found[:wrong].zero? && found[:theirs] == found[:registered]).to be(false)
  end

  it "disturb no job when job.c registers them, and run, in forked children too" do
    process = storm(<<~RUBY)
      require "json"
      $stdout.sync = true
      rounds = 0
      children = []
      figures = JobStorm.run(:job, 5) do
        rounds += 1
        children << fork { exit!(JobStorm.asked) } if rounds % 200 == 1 && children.size < 20
      end
      puts figures.merge(children: children.map { |pid| Process.wait2(pid).last.exitstatus }).to_json
    RUBY
    figures = result(process)
    expect(figures).to include(wrong: 0, theirs: figures[:registered], children: [1] * 20)
    expect(figures[:ours]).to be > 100
    expect(process.err).to be_empty
  end

  it "are never registered by a function for threads with the VM lock", :bpf do
    process = target("trap('TERM') { exit }\n#{Soak::LOAD}",
                     env: {"LD_PRELOAD" => library("jobs_without_lock")}).ready
    probes = %w[sample__stats function__stats exception__stats object__stats]
    attacher(process, *probes, cycles: 10).finish(within: 120)
    process.signal(:TERM)
    expect(Integer(process.await_line(/\Awithout the lock: (\d+)/)[1])).to eq(0)
  end

  it "are not registered when it would be unsafe, and the reason is given" do
    process = target("p Probescope.install, Probescope.unavailable_reason, Probescope.status[:installed]",
                     env: {"LD_PRELOAD" => library("jobs_without_lock"), "NO_ATFORK" => "1"})
    process.wait
    expect(process.out).to start_with("false\n\"no memory for a handler of forks\"\nfalse\n")
    expect(process.err).to be_empty
  end
end
