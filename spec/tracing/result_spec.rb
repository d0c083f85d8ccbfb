# frozen_string_literal: true

require "spec_helper"
require "probescope/tracing/output"
require "probescope/tracing/program"
require "probescope/tracing/result"

RSpec.describe Probescope::Tracing::Result do
  # bpftrace's clock is 5 s ahead of the process's: the machine was suspended for that long. The
  # time of day is the same on both.
  let(:ahead) { 5_000_000_000 }
  let(:maps) do
    {"wall_ns" => {"7" => 2_000_000_000}, "began" => {"7" => 11_300_000_000 + ahead},
     "ended" => {"7" => 13_200_000_000 + ahead},
     "first_cut" => {"7" => 11_000_000_000}, "last_cut" => {"7" => 13_000_000_000}}
  end
  let(:target) { {pid: 7, waited_ns: 0, tells_of_cut: true, tells_of_looking: false, taken_out: {}} }

  def interval(maps, target)
    ended = {targets: [target], by_pid: false, clock: -ahead, monotonic: 0}
    output = instance_double(Probescope::Tracing::Output, maps: maps)
    one = described_class.new(output, ended, Probescope::Tracing::Program.path("calls.bt")).processes.first
    [one.begin, one.end].map(&:to_f)
  end

  it "ends each interval at the moment up to which rows count, however late stats__done fired" do
    expect(interval(maps, target)).to eq([11.0, 13.0])
  end

  it "uses the time of stats__done for rows that are events, and for an older library" do
    expect(interval(maps.except("first_cut", "last_cut"), target)).to eq([11.3, 13.2])
    expect(interval(maps, target.merge(tells_of_cut: false))).to eq([11.3, 13.2])
  end

  it "uses the time of stats__done if the machine was suspended in between" do
    before = maps.merge("first_cut" => {"7" => 11_000_000_000 - 3_600_000_000_000})
    expect(interval(before, target)).to eq([11.3, 13.0])
  end

  it "takes a request's name without a method as its route, such as the row of all further routes" do
    maps = {"request" => {"7,5" => [5, "GET /a b"], "7,6" => [6, "(others)"], "7,8" => [8, "GET", "/b"]}}
    output = instance_double(Probescope::Tracing::Output, maps: maps)
    path = Probescope::Tracing::Program.path("syscalls_by_request.bt")
    expect(described_class.new(output, {targets: [target], by_pid: true}, path).requests)
      .to eq(5 => ["GET", "/a b"], 6 => [nil, "(others)"], 8 => ["GET", "/b"])
  end

  describe "of a process that flushed while bpftrace left" do
    # Whether an interval of this many ns of bpftrace's clock is torn, in a command of 2 s.
    def torn?(lasted, unended: [7])
      maps = {"wall_ns" => {"7" => 2_000_000_000}, "began" => {"7" => 1_000},
              "ended" => {"7" => 1_000 + lasted}}
      ended = {targets: [target], by_pid: false, clock: 0, unended: unended, closing: 1_750_000_000}
      output = instance_double(Probescope::Tracing::Output, maps: maps)
      described_class.new(output, ended, Probescope::Tracing::Program.path("calls.bt")).torn?
    end

    it "is torn, unless the program ended the interval before" do
      expect(torn?(1_740_000_000)).to be(true)
      expect(torn?(1_750_000_000)).to be(false)
      expect(torn?(1_740_000_000, unended: [])).to be(false)
      expect(torn?(1_740_000_000, unended: [8])).to be(true) # an unknown process
    end
  end
end
