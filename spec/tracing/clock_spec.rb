# frozen_string_literal: true

require "spec_helper"
require "probescope/tracing/clock"

RSpec.describe Probescope::Tracing::Clock do
  # Two clocks, of which the time of day is 1,000 s ahead. The thread lost its CPU for 30 ms before
  # these readings.
  def lose_the_cpu_at(*readings)
    time = count = 0
    allow(Process).to receive(:clock_gettime) do |clock, _|
      count += 1
      time += readings.include?(count) ? 30_000_000 : 50
      clock == Process::CLOCK_REALTIME ? time + 1_000_000_000_000 : time
    end
  end

  it "compares two clocks, wherever the CPU is lost between the readings" do
    lose_the_cpu_at(2, 6, 8, 11)
    expect(described_class.monotonic_offset).to eq(1_000_000_000_000)
    lose_the_cpu_at(1, 3, 5, 9)
    expect(described_class.new("6.1.0").offset).to eq(1_000_000_000_000)
  end
end
