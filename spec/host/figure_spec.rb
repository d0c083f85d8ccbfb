# frozen_string_literal: true

require "spec_helper"
require "probescope/host/figure"

RSpec.describe "Figures" do
  figure = Probescope::Host::Figure

  it "shows times with three digits and their unit" do
    expect([0, 7, 999, 1000, 12_345, 999_999, 1_500_000, 2_000_000_000, 3_600_000_000_000].map { |ns| figure.time(ns) })
      .to eq(["0 ns", "7 ns", "999 ns", "1.00 us", "12.3 us", "1000 us", "1.50 ms", "2.00 s", "3600 s"])
  end

  it "shows bytes, counts and shares" do
    expect([figure.bytes(40), figure.bytes(2048), figure.bytes(5 << 30)]).to eq(["40 B", "2.00 KiB", "5.00 GiB"])
    expect([figure.count(999), figure.count(1_234_567)]).to eq(["999", "1,234,567"])
    expect(figure.share(0.4049)).to eq("40.5 %")
  end

  it "shows what is unknown as a dash" do
    expect(%i[time bytes count share decimal].map { |name| figure.public_send(name, nil) }.uniq).to eq(["-"])
  end
end
