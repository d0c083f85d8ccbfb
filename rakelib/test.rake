# frozen_string_literal: true

require_relative "test_groups"
require_relative "test_run"

# `bin/test WORD` sets up and runs test:WORD. Python's own tests are noxfile.py's.
module TestTasks
  LINTERS = %w[lint:ruby lint:c lint:shell].freeze
  # Words of bin/test for some files: what the word is for, the files, and the variable that the
  # files ask for.
  WORDS = {
    "backends" => ["what sends to real backends",
                   "spec/otel/{prometheus,fluentd}_spec.rb", "PROBESCOPE_BACKENDS"],
    "frameworks" => ["web frameworks and queues of jobs",
                     "spec/{frameworks,queues}_spec.rb", "PROBESCOPE_FRAMEWORKS"],
    "hostile" => ["hostile processes and files", "spec/hostile/*_spec.rb"],
    "yjit" => ["what a JIT changes",
               "spec/ruby/{yjit,exceptions,functions,random,sampling,switching}_spec.rb"]
  }.freeze

  module_function

  def rake(run, *tasks, nice: 0)
    rake = ["nice", "-n", nice.to_s, RbConfig.ruby, "-S", "bundle", "exec", "rake"]
    tasks.each { |task| run.check(task[/\S+/].tr(":", "-"), *rake, *task.split) }
  end

  # What computes comes first, and then all that waits for tracers: beside a dozen tracers a compiler
  # takes minutes.
  def compute(run)
    run.beside(-> { rake(run, *LINTERS, "lint:workflows") }, -> { run.prepare_python })
    # For the gate's specs on trixie.
    Support::Turns.tell("computed")
  end

  def c_tests(run)
    # A lower priority leaves the processors to what is measured beside them.
    rake(run, "core:test", nice: 5)
    # Emulators take two minutes, and the gate leaves them to .ci/full.
    return if ENV["PROBESCOPE_GATE"]

    rake(run, "core:aarch64", nice: 5)
    rake(run, "memcheck CYCLES=16", nice: 5) if Process.uid.zero?
  end

  # Held against a clock, so it has the machine for itself.
  def story(run)
    Support::Turns.tell("story")
    run.specs("specs-story", "spec/story_spec.rb", alone: true)
  end
end

namespace :test do
  desc "Linters, C tests, RSpec and pytest"
  task :all do
    TestRun.open do |run|
      TestTasks.compute(run)
      run.beside(-> { TestTasks.c_tests(run) },
                 -> { run.prepared_python },
                 -> { TestGroups.side_by_side(run, TestGroups::ALL) })
      TestTasks.story(run)
    end
  end

  desc "Linters, fixtures and units: without root and BPF, in less than a minute"
  task :fast do
    quick = ["--tag", "~bpf", "--tag", "~slow", "--exclude-pattern", TestGroups::OTHERS]
    TestRun.open(root: false) do |run|
      run.beside(-> { TestTasks.rake(run, *TestTasks::LINTERS) },
                 -> { run.python("nox", "--session", "lint", "units") },
                 -> { run.specs("specs", "--profile", "10", *quick) })
    end
  end

  desc "RSpec alone"
  task :specs do
    TestRun.open do |run|
      TestGroups.side_by_side(run, TestGroups::ALL)
      TestTasks.story(run)
    end
  end

  desc "RSpec: what depends on the versions of Ruby and bpftrace"
  task(:matrix) { TestRun.open { |run| TestGroups.side_by_side(run, TestGroups::MATRIX) } }

  desc "RSpec: what holds the answers against a clock"
  task(:story) { TestRun.open { |run| TestTasks.story(run) } }

  TestTasks::WORDS.each do |word, (what, files, variable)|
    desc "RSpec: #{what}"
    task word do
      TestRun.open(env: variable ? { variable => "1" } : {}) { |run| run.specs("specs", *Dir[files]) }
    end
  end
end
