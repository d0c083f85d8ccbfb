# frozen_string_literal: true

require "spec_helper"
require "probescope/otel/assembly"
require "probescope/otel/lines"

RSpec.describe Probescope::Otel::Assembly do
  event = Probescope::Otel::Lines::SLOW.event
  # A tree as {id => {id of a callee => ...}}.
  shape = ->(node) { [node.event.span_id, node.callees.sort_by { |one| one.event.span_id }.map(&shape)] }
  subject(:assembly) { described_class.new { |tree| trees << shape.call(tree) } }

  let(:trees) { [] }

  define_method(:call) do |id, caller|
    event.new.tap do |one|
      one.span_id = id
      one.parent_id = caller
    end
  end

  it "makes one tree of calls that end before their callers, and of calls that are read after them" do
    assembly.add(call(3, 2), 0)
    assembly.add(call(2, 1), 0)
    assembly.add(call(1, 0), 0)
    assembly.add(call(5, 4), 0.5)
    assembly.add(call(4, 1), 0.5)
    assembly.expire(0.9)
    expect(trees).to be_empty
    assembly.expire(1)
    expect(trees).to eq([[1, [[2, [[3, []]]], [4, [[5, []]]]]]])
    expect(assembly.late).to eq(0)
  end

  it "finishes a call after a time limit, and later does not wait for the same caller" do
    assembly.add(call(3, 2), 0)
    assembly.expire(described_class::WAIT)
    assembly.add(call(4, 2), described_class::WAIT)
    assembly.expire(described_class::WAIT + described_class::GRACE)
    expect(trees).to eq([[3, []], [4, []]])
    expect(assembly.late).to eq(2)
  end

  it "keeps no more waiting calls than its limit, and loses none" do
    count = described_class::MOST + 10
    count.times { |i| assembly.add(call(i + 1, 1_000_000 + i), 0) }
    assembly.expire(described_class::GRACE)
    expect(trees.size).to eq(10)
    assembly.finish
    expect(trees.flatten.sort).to eq((1..count).to_a)
  end

  it "ends when calls name each other as callers" do
    assembly.add(call(1, 2), 0)
    assembly.add(call(2, 1), 0)
    assembly.add(call(7, 7), 0)
    assembly.finish
    expect(trees.flatten).to contain_exactly(1, 2, 7)
  end

  {"themselves as callers" => [[7, 7]], "each other as callers" => [[1, 2], [2, 1]],
   "one caller" => [[1, 3], [2, 3], [3, 1]],
   "a caller that is there" => [[1, 0], [2, 1]]}.each do |what, calls|
    it "keeps no more calls than its limit of those that name #{what}, and loses none" do
      released = most = 0
      bounded = described_class.new { |tree| tree.each { released += 1 } }
      bounded.most = 100
      calls.cycle.first(10_000).each do |id, caller|
        bounded.add(call(id, caller), 0)
        most = [most, bounded.size].max
      end
      expect(most).to eq(100)
      expect(released).to be >= 9_900
      bounded.finish
      expect([released, bounded.size]).to eq([10_000, 0])
    end
  end
end
