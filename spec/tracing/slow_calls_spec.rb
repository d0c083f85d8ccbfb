# frozen_string_literal: true

require "spec_helper"
require "probescope/tracing/slow_calls"

RSpec.describe Probescope::Tracing::SlowCalls do
  # Makes calls from {id => [parent, ms]}, with the id as the name.
  def calls(of)
    of.map do |id, (parent, ms)|
      described_class::Call.new(id, parent, {name: id, elapsed_ns: ms, at: id.to_s})
    end
  end

  def shown(calls) = calls.rows.map { |row| row.values_at(:name, :depth) }

  it "puts each call below its nearest selected caller, the longest first" do
    all = calls(1 => [0, 100], 2 => [1, 30], 3 => [1, 60], 4 => [3, 50], 5 => [0, 200])
    expect(shown(described_class.new(all) { true })).to eq([[5, 0], [1, 0], [3, 1], [4, 2], [2, 1]])
    expect(shown(described_class.new(all) { |row| row[:name] != 3 })).to eq([[5, 0], [1, 0], [4, 1], [2, 1]])
  end

  it "leaves out calls that only made the next one" do
    found = described_class.new(calls(1 => [0, 100], 2 => [1, 99], 3 => [2, 98], 4 => [3, 10],
                                      5 => [3, 11])) { true }
    expect(found.leave_out_relays).to eq(1)
    expect(shown(found)).to eq([[1, 0], [3, 1], [5, 2], [4, 2]])
  end

  it "shows calls whose ids form a circle" do
    expect(shown(described_class.new(calls(1 => [2, 10], 2 => [1, 20], 3 => [0, 5])) { true }))
      .to eq([[3, 0], [1, 0], [2, 1]])
  end
end
