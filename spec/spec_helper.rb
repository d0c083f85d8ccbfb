# frozen_string_literal: true

require "fileutils"
require "json"
require "rbconfig"
require "timeout"
require "tmpdir"

# Everything a spec starts is real: Ruby processes, bpftrace, the kernel's uprobes. spec/support
# holds the handles.
%w[paths await attempts turns skips elf info child python target bpf tracer attacher processes rack_app
   flask_app].each do |name|
  require_relative "support/#{name}"
end

RSpec.configure do |config|
  config.disable_monkey_patching!
  config.expect_with(:rspec) { |expectations| expectations.syntax = :expect }
  config.filter_run_when_matching :focus
  config.example_status_persistence_file_path = File.join(Support::ROOT, "tmp/spec-status.txt")
  # One at a time, in the written order: these examples share two cores with the processes that they
  # measure.
  config.order = :defined

  config.include Support::Await
  config.include Support::Attempts
  config.include Support::Skips::InExamples
  config.include Support::Processes
  config.include Support::Elf

  # What hangs fails, and says which example it was. Far above what the longest one takes on a slow
  # machine. within: seconds, for those that are long on purpose.
  config.around { |example| Support::Turns.take(valgrind: example.metadata[:valgrind]) { example.run } }
  config.around { |example| Timeout.timeout(example.metadata.fetch(:within, 300)) { example.run } }
  config.before(:each, :bpf) { Support::Bpf.require! { |reason| skip reason } }
  # full: why the gate leaves it to .ci/full.
  config.before(:each, :full) do |example|
    skip "of .ci/full: #{example.metadata[:full]}" if ENV["PROBESCOPE_GATE"]
  end
  config.before(:each, :python) { Support::Python.require! { |reason| skip reason } }
  config.after do |example|
    tell_of_processes if example.exception
    stop_processes
  end
end
