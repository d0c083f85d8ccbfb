# frozen_string_literal: true

require "open3"
require "support/profiles"
require "probescope/profile/summary"

# What Go's own tool says of a recording is what the tables say.
RSpec.describe "A recording in `go tool pprof`", full: "needs Go, which has 250 MB" do
  before do
    known = system("go version", %i[out err] => File::NULL)
    skip "of .ci/full: needs Go: apt-get install golang-go" unless known
  end

  profiles = Support::Profiles

  # {function => [ns in it, ns in it and in what it called]}
  def told_by_go(path)
    out, status = Open3.capture2("go", "tool", "pprof", "-top", "-nodecount=1000000", "-nodefraction=0",
                                 "-edgefraction=0", "-symbolize=none", "-sample_index=cpu", "-unit=ns", path,
                                 err: File::NULL)
    expect(status).to be_success
    out.lines.drop_while { |line| !line.match?(/ flat%/) }.drop(1).to_h do |line|
      flat, _, _, cum, _, name = line.strip.split(/\s+/, 6)
      [name, [flat, cum].map { |text| text.delete_suffix("ns").to_i }]
    end
  end

  def told_by_tables(recording)
    itself, all = %w[self total].map { |by| Probescope::Profile::Summary.new(recording, 0, by).rows }
    alone = itself.to_h { |row| [row.function.name, row.weight] }
    all.to_h { |row| [row.function.name, [alone.fetch(row.function.name, 0), row.total]] }
  end

  it "has the time of each function, by itself and with what it called" do
    Dir.mktmpdir do |dir|
      made = profiles.seconds(20) { {"Shop#pay" => 120, "Shop#list" => 60} }
      [profiles.recording(profiles.lines("shop")), made].each do |recording|
        expect(told_by_go(profiles.write(recording, "#{dir}/a.pb.gz"))).to eq(told_by_tables(recording))
      end
    end
  end
end
