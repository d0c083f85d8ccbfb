# frozen_string_literal: true

require "spec_helper"
require "probescope/tracing/ticked_time"

RSpec.describe Probescope::Tracing::TickedTime do
  def missed(part, seconds:, tick:)
    exact = (seconds * 1e9).round
    described_class.missed([50, 70], [50 + (exact * (1 - part)).round, 70 + exact], tick: tick)
  end

  # The kernel subtracts time that a virtual machine did not get, so a few steps are shorter.
  it "has the length of the kernel's tick, by which the first clock advances" do
    readings = [described_class.of(Process.pid).first]
    while readings.size < 30
      5_000.times(&:to_s)
      readings |= [described_class.of(Process.pid).first]
    end
    steps = readings.each_cons(2).map { |before, after| after - before }
    expect(steps.tally.max_by(&:last).first).to eq((described_class::TICK * 1e9).round)
  end

  it "tells what more ticks missed sooner, because chance explains less of it" do
    expect(missed(0.15, seconds: 2, tick: 0.01)).to be_nil
    expect(missed(0.15, seconds: 5, tick: 0.01)).to be_within(0.001).of(0.15)
    expect(missed(0.15, seconds: 2, tick: 0.004)).to be_within(0.001).of(0.15)
    expect(missed(0.10, seconds: 2, tick: 0.004)).to be_nil
    expect(missed(0.10, seconds: 2, tick: 0.001)).to be_within(0.001).of(0.10)
  end

  it "tells nothing below 5 %, however many ticks there were, and nothing of no CPU time" do
    expect(missed(0.04, seconds: 600, tick: 0.001)).to be_nil
    expect(missed(0.06, seconds: 600, tick: 0.001)).to be_within(0.001).of(0.06)
    expect(missed(0, seconds: 0, tick: 0.001)).to be_nil
  end
end
