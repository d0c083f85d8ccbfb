# frozen_string_literal: true

require "spec_helper"
require "probescope/host/figure"

RSpec.describe "Figures" do
  figure = Probescope::Host::Figure

  it "shows times with three digits and their unit" do
    expect(
      [0, 7, 999, 1000, 12_345, 1_500_000, 2_000_000_000, 3_600_000_000_000].map { |ns| figure.time(ns) }
    )
      .to eq(["0 ns", "7 ns", "999 ns", "1.00 us", "12.3 us", "1.50 ms", "2.00 s", "3600 s"])
  end

  it "takes the next unit, or one decimal less, if rounding would give a fourth digit" do
    expect([9994, 9996, 99_940, 99_960, 999_499, 999_600, 999_999_999].map { |ns| figure.time(ns) })
      .to eq(["9.99 us", "10.0 us", "99.9 us", "100 us", "999 us", "1.00 ms", "1.00 s"])
    expect([999, 1023, 1_022_976, 1_047_552].map { |bytes| figure.bytes(bytes) })
      .to eq(["999 B", "1.00 KiB", "999 KiB", "1.00 MiB"])
  end

  it "shows bytes, counts and shares" do
    expect([figure.bytes(40), figure.bytes(2048), figure.bytes(5 << 30)])
      .to eq(["40 B", "2.00 KiB", "5.00 GiB"])
    expect([figure.count(999), figure.count(1_234_567)]).to eq(["999", "1,234,567"])
    expect(figure.share(0.4049)).to eq("40.5 %")
  end

  it "shows no fraction for a thousand and more" do
    expect([0, 37.25, 999.94, 999.96, 6704.6, 171_384.1].map { |number| figure.decimal(number) })
      .to eq(%w[0.0 37.2 999.9 1,000 6,705 171,384])
  end

  it "shows an unknown figure as a dash" do
    expect(%i[time bytes count share decimal].map { |name| figure.public_send(name, nil) }.uniq).to eq(["-"])
  end
end
