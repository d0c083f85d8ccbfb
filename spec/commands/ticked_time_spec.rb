# frozen_string_literal: true

require "spec_helper"

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
      expect(said).to match(/ticks.* missed \d+\.\d % of the CPU time of process #{program.pid}/)
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
