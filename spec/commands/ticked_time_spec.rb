# frozen_string_literal: true

require "spec_helper"
require "support/host_helpers"

RSpec.describe "hot of CPython, whose samples come at ticks of the library", :bpf, :python do
  # What hot of the gem and of the wheel say about ticks.
  def told(process)
    wheel = keep(Support::Child.new(Support::Python.interpreter, "-m", "probescope", "trace", "hot",
                                    "-p", process.pid.to_s, "-d", "2",
                                    env: Support.command_env.merge("PYTHONPATH" => Support::Python::PACKAGE)))
    wheel.wait(within: 60)
    [probescope("hot", "-p", process.pid, "-d", 2).err, wheel.err].map { |err| err[/ticks.*/] }
  end

  it "says how much of its CPU time no tick met, if the library counted more than chance explains" do
    expect(told(host_target("--met", 850)))
      .to all(start_with("ticks at which samples are taken missed 15.0 % of the CPU time of process"))
    expect(told(host_target("--met", 960))).to eq([nil, nil])
  end

  it "says nothing of a loop, which ticks meet as often as it runs" do
    program = keep(Support::Child.new(Support::Python.interpreter, "-c", <<~PYTHON, env: Support::Python.env))
      print("ready", flush=True)
      while True: sum(range(1000))
    PYTHON
    program.await_line(/ready/)
    expect(told(program)).to eq([nil, nil])
  end
end

RSpec.describe "hot and lines of Ruby, whose samples come at the kernel's ticks", :bpf do
  before { skip "ticks were not tried on this version of Ruby" unless Support::RUBY_TICKS }

  # The ticks are at whole milliseconds of this clock with CONFIG_HZ of 100, 250 and 1000.
  let(:between_ticks) do
    <<~RUBY
      puts "ready"
      $stdout.flush
      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
      def work(till) = (nil while now < till)
      loop do
        start = (now / 1_000_000 + 1) * 1_000_000
        sleep((start + 100_000 - now) / 1e9)
        work(start + 800_000)
      end
    RUBY
  end

  it "say how much CPU time no tick met" do
    program = target(between_ticks).ready
    %w[hot lines].each do |command|
      said = probescope(command, "-p", program.pid, "-d", 2).err
      expect(said).to match(/ticks .*missed \d+\.\d % of the CPU time of process #{program.pid}/)
      expect(said[/missed (\d+)/, 1].to_i).to be_between(50, 100)
    end
    expect(probescope("alloc", "-p", program.pid, "-d", 1).err).not_to include("ticks")
  end

  it "say nothing where ticks met what the process ran" do
    program = target(<<~RUBY).ready
      puts "ready"
      $stdout.flush
      loop { 20_000.times { |i| i.to_s } }
    RUBY
    expect(probescope("hot", "-p", program.pid, "-d", 2).err).not_to include("ticks")
  end
end
