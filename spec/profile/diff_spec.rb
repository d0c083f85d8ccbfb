# frozen_string_literal: true

require "support/profiles"
require "probescope/profile/diff"

# A function that changed is named, and noise is not.
RSpec.describe Probescope::Profile::Diff do
  profiles = Support::Profiles

  def changed(before, after, by: "own", per: "time")
    described_class.new(before, after, by: by, per: per, min: 0.01).rows("cpu").select(&:changed)
  end

  # Poisson noise of samples, and a load that goes up and down over some seconds.
  def noisy(random, ms, second)
    load = 1 + (0.3 * Math.sin((second / 4.0) + random.rand))
    sum = 0
    expected = ms / 10.0 * load
    count = 0
    sum -= Math.log(1 - random.rand) while (sum < expected) && (count += 1)
    count * 10
  end

  define_method(:of) do |seed, figures, seconds: 20|
    random = Random.new(seed)
    profiles.seconds(seconds) { |second| figures.transform_values { |ms| noisy(random, ms, second) } }
  end

  def base = {"Shop#serve" => 200, "Shop#pay" => 120, "Shop#list" => 60, "Shop#log" => 20}

  it "names the function that became twice as dear, and nothing else" do
    5.times do |seed|
      rows = changed(of(seed, base), of(seed + 100, base.merge("Shop#pay" => 240)))
      expect(rows.map(&:name)).to eq(["Shop#pay"])
      expect(rows.first.share).to be_within(0.1).of(0.3)
    end
  end

  it "names nothing where nothing changed, by own, self and total, per time and cpu" do
    20.times do |seed|
      pair = [of(seed, base), of(seed + 1000, base)]
      %w[own self total].product(%w[time cpu]).each do |by, per|
        expect(changed(*pair, by: by, per: per)).to eq([]), "seed #{seed}, by #{by}, per #{per}"
      end
    end
  end

  it "says of no function that it changed where the recordings have too few spans of time" do
    after = of(2, base.merge("Shop#pay" => 2400), seconds: 4)
    diff = described_class.new(of(1, base, seconds: 4), after, by: "own", per: "time", min: 0.01)
    expect(diff).to be_too_short
    expect(diff.rows("cpu").map(&:changed)).to all(be(false))
  end

  it "names a function that is new, and one that is gone" do
    after = base.except("Shop#list").merge("Shop#search" => 90)
    expect(changed(of(1, base), of(2, after)).map(&:name)).to match_array(%w[Shop#list Shop#search])
  end

  it "compares shares where the load was another one" do
    twice = base.transform_values { |ms| ms * 2 }
    expect(changed(of(1, base), of(2, twice), per: "cpu")).to eq([])
    rows = changed(of(1, base), of(2, twice.merge("Shop#pay" => 600)), per: "cpu")
    expect(rows.map(&:name)).to include("Shop#pay")
  end

  it "charges all of the weight: the rows add up to the whole" do
    diff = described_class.new(of(1, base), of(2, base), by: "self", per: "time", min: 0.01)
    %i[before after].zip(diff.wholes("cpu")).each do |side, whole|
      expect(diff.rows("cpu").sum(&side)).to be_within(1e-6 * whole).of(whole)
    end
  end

  it "refuses to compare by requests where none are recorded" do
    expect { described_class.new(of(1, base), of(2, base), by: "own", per: "request", min: 0.01) }
      .to raise_error(Probescope::Tracing::Misused, /first recording tells no requests/)
  end
end
