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
    expect(diff.too_short).to eq(%w[first second].map do |which|
      "the #{which} recording has 4 spans of time, and 5 are needed to tell a change from chance"
    end)
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

  # A span that is shorter than the others would make each function look uneven.
  it "names a function that is the same in each second, whatever the number of seconds" do
    figures = {"Shop#pay" => 100, "Shop#list" => 900}
    [20, 21, 25, 33, 41].each do |seconds|
      before, after = [100, 150].map do |ms|
        profiles.seconds(seconds) { figures.merge("Shop#pay" => ms) }
      end
      expect(changed(before, after).map(&:name)).to eq(["Shop#pay"]), "#{seconds} s"
      after.duration_ns += 20_000_000 # a flush comes late
      expect(changed(before, after).map(&:name)).to eq(["Shop#pay"]), "#{seconds} s and a moment"
    end
  end

  it "leaves out the last bucket of a widened recording, which is not over" do
    before, after = [100, 150].map do |ms|
      profiles.seconds(43, most_cells: 40) { {"Shop#pay" => ms, "Shop#list" => 900} }
    end
    expect(before.bucket_ns).to eq(8 * Support::Profiles::SECOND)
    expect(changed(before, after).map(&:name)).to eq(["Shop#pay"])
  end

  it "has no spans of a file of another tool, and needs shares there" do
    foreign = Array.new(2) do |i|
      Probescope::Profile::Recording.new([Probescope::Profile::KINDS.first]).tap do |one|
        node = one.child(0, one.frame(Probescope::Profile::Frame.new("main", "a.go", 1, 1, false, false)))
        one.add(0, one.series_number(0, 0, nil), 0, node, 1, 10 + i, 1)
        one.duration_ns = 30 * Support::Profiles::SECOND
      end
    end
    diff = described_class.new(*foreign, by: "self", per: "cpu", min: 0.01)
    expect(diff.too_short.first).to start_with("the first recording has 0 spans of time, and 5 are needed")
    expect(diff.rows("cpu").map(&:changed)).to eq([false])
    expect { described_class.new(*foreign, by: "self", per: "time", min: 0.01) }
      .to raise_error(Probescope::Tracing::Misused, /first recording tells no wall time/)
  end
end
