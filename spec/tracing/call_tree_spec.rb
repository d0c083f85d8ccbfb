# frozen_string_literal: true

require "spec_helper"
require "probescope/tracing/call_tree"
require "probescope/tracing/numbered"

RSpec.describe Probescope::Tracing::CallTree do
  def shown(min_ns = 0)
    lines = []
    tree = described_class.new(min_ns) do |call|
      lines << call.values_at(:event, :depth, :function, :elapsed_ns, :outcome)
    end
    yield tree
    lines
  end

  it "prints one line for a call without callees, and two for others" do
    lines = shown do |tree|
      tree.enter(1, 0, "a", "f.rb", 1)
      tree.enter(1, 1, "b", "f.rb", 2)
      tree.leave(1, 1, 10, 10, 0, "b")
      tree.leave(1, 0, 30, 20, 1, "a")
    end
    expect(lines)
      .to eq([["enter", 0, "a", nil, nil], ["call", 1, "b", 10, "returned"], ["leave", 0, "a", 30, "raised"]])
  end

  it "shows only long calls and their callers, in each context separately" do
    lines = shown(20) do |tree|
      tree.enter(1, 0, "a", "f.rb", 1)
      tree.enter(2, 0, "other", "f.rb", 9)
      tree.enter(1, 1, "short", "f.rb", 2)
      tree.leave(1, 1, 10, 10, 0, "short")
      tree.enter(1, 1, "long", "f.rb", 3)
      tree.leave(1, 1, 25, 25, 0, "long")
      tree.leave(2, 0, 5, 5, 0, "other")
      tree.leave(1, 0, 40, 5, 0, "a")
    end
    expect(lines.map { |line| line.values_at(0, 2) }).to eq([%w[enter a], %w[call long], %w[leave a]])
  end

  it "recovers its depth after calls that ended without an event" do
    lines = shown do |tree|
      tree.enter(1, 0, "a", "f.rb", 1)
      5.times { |i| tree.enter(1, 1 + i, "deep", "f.rb", 2) }
      tree.leave(1, 0, 30, 20, 0, "a")
      tree.enter(1, 0, "b", "f.rb", 1)
      tree.leave(1, 0, 3, 3, 0, "b")
    end
    expect(lines.last(2)).to eq([["leave", 0, "a", 30, "returned"], ["call", 0, "b", 3, "returned"]])
  end

  it "names the open call as time passes" do
    lines = shown do |tree|
      tree.enter(1, 0, "waits", "f.rb", 1)
      tree.pause
    end
    expect(lines).to eq([["enter", 0, "waits", nil, nil]])
  end
end

RSpec.describe Probescope::Tracing::Numbered do
  subject(:numbered) { described_class.new }

  it "restores the order" do
    got = []
    [2, 1, 4, 3].each { |number| numbered.push(number, "e#{number}") { |event| got << event } }
    expect(got).to eq(%w[e1 e2 e3 e4])
  end

  it "counts what does not arrive by the second tick, also at the end" do
    got = []
    take = ->(event) { got << event }
    numbered.push(1, "e1", &take)
    numbered.push(4, "e4", &take)
    numbered.fired(6, &take)
    expect(got).to eq(%w[e1])
    numbered.fired(8, &take)
    expect(got).to eq(["e1", 2, "e4", 2])
    numbered.push(3, "late", &take)
    numbered.push(9, "e9", &take)
    numbered.rest(&take)
    expect(got.last(2)).to eq([2, "e9"])
    expect(numbered.missing).to eq(6)
  end

  it "counts at the end what was fired and has not arrived, with no event after it" do
    got = []
    take = ->(event) { got << event }
    [1, 3].each { |number| numbered.push(number, "e#{number}", &take) }
    numbered.fired(5, &take)
    numbered.mark(5, "second", &take)
    expect([numbered.missing, numbered.missing(9)]).to eq([3, 7])
    numbered.rest(9, &take)
    expect(got).to eq(["e1", 1, "e3", 6, "second"])
    expect([numbered.missing, numbered.missing(9)]).to eq([7, 7])
  end

  it "stops waiting after a limit" do
    got = []
    (2..(described_class::PATIENCE + 2)).each do |number|
      numbered.push(number, number.to_s) { |event| got << event }
    end
    expect(got.first(2)).to eq([1, "2"])
  end
end
