# frozen_string_literal: true

require "spec_helper"
require "probescope/tracing/deadline"
require "probescope/tracing/reader"

RSpec.describe Probescope::Tracing::Deadline do
  # Asks the reader until the deadline has passed. Prints the seconds that this took, and the
  # seconds of these in which reader and program waited for a CPU.
  source = <<~RUBY
    require "probescope/tracing/reader"
    before = Probescope::Tracing::Reader.run_delay
    deadline = Probescope::Tracing::Reader.deadline(0.2)
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    Probescope::Tracing::Reader.ask(:row, Process.pid) until deadline.passed?
    seconds = Process.clock_gettime(Process::CLOCK_MONOTONIC) - began
    delayed = Probescope::Tracing::Reader.run_delay - before
    puts [seconds, delayed].join(" ")
  RUBY

  def figures(source, *prefix)
    child = keep(Support::Child.new(*prefix, RbConfig.ruby, "-I#{Support::ROOT}/lib", "-e", source))
    expect(child.wait(within: 120)).to be_success, child.to_s
    child.out.split.map(&:to_f)
  end

  it "does not count the seconds in which a reader waits for a CPU" do
    on_one_cpu = %w[taskset -c 0]
    busy = Array.new(4) { keep(Support::Child.new(*on_one_cpu, RbConfig.ruby, "-e", "loop {}")) }
    child = keep(Support::Child.new(*on_one_cpu, RbConfig.ruby, "-I#{Support::ROOT}/lib", "-e", source))
    expect(child.wait(within: 120)).to be_success, child.to_s
    expect(busy).to all(be_alive)
    seconds, delayed = child.out.split.map(&:to_f)
    # The two may wait at the same time, so that their waits are up to twice the time that passed.
    # If waits counted, the four others would leave less than 0.05 s.
    expect(seconds - delayed).to be > 0.1
  end

  it "passes after the seconds and the longest wait at the latest" do
    delays = [0.0]
    deadline = described_class.new(0.05, most: 0.1) { delays.shift || 1000.0 }
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    await("its end") { deadline.passed? }
    expect(Process.clock_gettime(Process::CLOCK_MONOTONIC) - began).to be_between(0.15, 5)
  end
end
