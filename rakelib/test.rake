# frozen_string_literal: true

require_relative "test_groups"
require_relative "test_run"

# `bin/test WORD` sets up the checkout and runs test:WORD. noxfile.py runs the tests in Python.
module TestTasks
  LINTERS = %w[lint:ruby lint:c lint:includes lint:kept lint:shell].freeze
  # Words of bin/test that run some files. {word => [description, files, the environment variable
  # without which the files skip their tests]}
  WORDS = {
    "backends" => ["the bridge with real backends",
                   "spec/otel/{prometheus,fluentd}_spec.rb", "PROBESCOPE_BACKENDS"],
    "frameworks" => ["web frameworks and queues of jobs",
                     "spec/{frameworks,queues}_spec.rb", "PROBESCOPE_FRAMEWORKS"],
    "page" => ["the page of a recording, in Chromium", "spec/page/*_spec.rb"],
    "hostile" => ["hostile processes and files", "spec/hostile/*_spec.rb"],
    "yjit" => ["files in which a JIT makes a difference",
               "spec/ruby/{yjit,exceptions,functions,random,sampling,switching}_spec.rb"]
  }.freeze

  module_function

  def rake(run, *tasks, nice: 0)
    rake = ["nice", "-n", nice.to_s, RbConfig.ruby, "-S", "bundle", "exec", "rake"]
    tasks.each { |task| run.check(task[/\S+/].tr(":", "-"), *rake, *task.split) }
  end

  # Runs the programs that compute, before the tests that mostly wait for tracers: beside a dozen
  # tracers a compiler needs minutes.
  def compute(run)
    run.beside(-> { rake(run, *LINTERS, "lint:workflows") }, -> { run.prepare_python })
    # The gate's specs on trixie wait for this.
    Support::Turns.tell("computed")
  end

  def c_tests(run)
    # At a lower priority, these do not disturb the measurements of tests that run beside them.
    rake(run, "core:sanitized", nice: 5)
    # These take minutes, so the gate leaves them to .ci/full.
    return if ENV["PROBESCOPE_GATE"]

    rake(run, "core:plain", "core:threads", "core:aarch64", nice: 5)
    rake(run, "memcheck CYCLES=16", nice: 5) if Process.uid.zero?
  end

  # Runs the story alone, because it compares answers with a clock.
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
    quick = ["--tag", "~bpf", "--tag", "~slow", "--exclude-pattern", TestGroups::APART]
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

  desc "RSpec: files that depend on the versions of Ruby and bpftrace"
  task(:matrix) { TestRun.open { |run| TestGroups.side_by_side(run, TestGroups::MATRIX) } }

  desc "RSpec: the story, which compares answers with a clock"
  task(:story) { TestRun.open { |run| TestTasks.story(run) } }

  TestTasks::WORDS.each do |word, (what, files, variable)|
    desc "RSpec: #{what}"
    task word do
      TestRun.open(env: variable ? { variable => "1" } : {}) { |run| run.specs("specs", *Dir[files]) }
    end
  end
end
