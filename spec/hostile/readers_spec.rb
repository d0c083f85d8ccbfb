# frozen_string_literal: true

require "spec_helper"
require "hostile/fuzz"
require "probescope/message"

# `rake fuzz:readers` does the same for ten minutes.
RSpec.describe "The readers of foreign processes", :slow do
  it "give equal results for each input in gem and wheel, in little time and memory" do
    fuzz = ReadersFuzz.new(1)
    fuzz.corpus
    expect(known = fuzz.inputs).to be > 25
    fuzz.run(5)
    expect(fuzz.inputs).to be > known
    expect(fuzz.cases).to eq([])
  ensure
    fuzz&.close
  end
end

RSpec.describe Probescope::Message do
  def any(value) = described_class.any(value)
  def list(*values) = described_class.field(5, values.map { |value| described_class.field(1, value) }.join)

  def read(value)
    pair = described_class.field(1, "name") + described_class.field(2, value)
    described_class.attributes(described_class.field(1, described_class.field(1, pair)))
  end

  it "accepts scalars and lists of one kind, and nothing else" do
    ["text", 3, -3, 1.5, true, %w[a b], [1, 2], [true, false]].each do |value|
      expect(read(any(value))).to eq("name" => value)
    end
    [list(any("a"), any(1)), list(any(1), ""), list("", any(1)), list, list(any(["a"])), "",
     described_class.field(7, "bytes")]
      .each { |bytes| expect(read(bytes)).to eq({}) }
    expect { described_class.attributes("\xff" * 20) }.to raise_error(described_class::Malformed)
  end
end
