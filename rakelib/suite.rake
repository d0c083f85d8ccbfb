# frozen_string_literal: true

desc "Ruby's own tests plain and attached, compared " \
     "(as root; SOURCES=of Ruby, or where ruby-3.1.2 is; RUBY, FILES=test_array,test_h*)"
task suite: :compile do
  require_relative "../bench/ruby_suite"
  sources = ENV.fetch("SOURCES") { abort "SOURCES=directory of the sources of this version of Ruby" }
  suite = RubySuite.new(ruby: ENV.fetch("RUBY", RbConfig.ruby), sources: sources,
                        files: ENV.fetch("FILES", "").split(","))
  differing = suite.differing
  puts suite.totals
  abort "FAILED: suite: #{differing.keys.join(", ")}" unless differing.empty?
end

desc "CPython's own tests plain and attached, compared " \
     "(as root; PYTHON=/path, with its tests installed; MODULES=test_gc,test_dict)"
task "suite:python": :compile do
  HuntTask.python
  modules = ENV.fetch("MODULES", "").split(",")
  variables = { "PYTHONPATH" => File.expand_path("python") }
  exit false unless system(variables, ENV.fetch("PYTHON"), "bench/cpython.py", *modules)
end
