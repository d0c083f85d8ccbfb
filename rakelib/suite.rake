# frozen_string_literal: true

desc "Run Ruby's own tests without and with a tracer, and compare the results " \
     "(as root; SOURCES=Ruby's sources, or the directory of ruby-3.1.2; RUBY, FILES=test_array,test_h*)"
task suite: :compile do
  require_relative "../bench/ruby_suite"
  sources = ENV.fetch("SOURCES") { abort "SOURCES is missing: the sources of this version of Ruby" }
  suite = RubySuite.new(ruby: ENV.fetch("RUBY", RbConfig.ruby), sources: sources,
                        files: ENV.fetch("FILES", "").split(","))
  differing = suite.differing
  puts suite.totals
  abort "FAILED: suite: #{differing.keys.join(", ")}" unless differing.empty?
end

desc "Run CPython's own tests without and with a tracer, and compare the results " \
     "(as root; PYTHON=/path, with its tests installed; MODULES=test_gc,test_dict)"
task "suite:python": :compile do
  HuntTask.python
  modules = ENV.fetch("MODULES", "").split(",")
  variables = { "PYTHONPATH" => File.expand_path("python") }
  exit false unless system(variables, ENV.fetch("PYTHON"), "bench/cpython.py", *modules)
end
