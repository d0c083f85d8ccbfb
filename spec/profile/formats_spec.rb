# frozen_string_literal: true

require "open3"
require "support/profiles"

# What is written is what was recorded, in each format, and a file that is none is refused.
RSpec.describe "A recording" do
  around { |example| Dir.mktmpdir { |dir| (@dir = dir) && example.run } }

  profiles = Support::Profiles
  let(:recording) { profiles.recording(profiles.lines("shop")) }

  def file(ending) = File.join(@dir, "shop#{ending}")
  def read(path) = Probescope::Profile::PprofReader.read(path)
  def fixture(name) = File.join(Support::ROOT, "spec/fixtures/profile", name)

  # Compares the text with the file, or writes the file.
  def expect_golden(name, text)
    File.binwrite(fixture(name), text) if ENV["PROBESCOPE_GOLDEN"] == "write"
    expect(text.b).to eq(File.binread(fixture(name)))
  end

  it "is written as before, to the byte: .pb (unpacked), .collapsed, .speedscope.json" do
    packed = profiles.write(recording, file(".pb.gz"))
    expect_golden("shop.pb", Zlib.gunzip(File.binread(packed)))
    expect_golden("shop.collapsed", File.binread(profiles.write(recording, file(".collapsed"))))
    speedscope = File.read(profiles.write(recording, file(".speedscope.json")))
    expect_golden("shop.speedscope.json", speedscope.sub(/probescope@[^"]+/, "probescope@VERSION"))
  end

  it "is the same after it was read back" do
    first = profiles.write(recording, file(".pb.gz"))
    again = read(first)
    expect(again.metadata).to eq(recording.metadata)
    expect([again.begin_ns, again.duration_ns]).to eq([recording.begin_ns, recording.duration_ns])
    second = profiles.write(again, File.join(@dir, "again.pb.gz"))
    bys = %w[own self total]
    shown = [recording, again, read(second)].map do |one|
      bys.map { |by| Probescope::Profile::Summary.new(one, 0, by).shown }
    end
    expect(shown.uniq.size).to eq(1)
  end

  it "of the first version can be read" do
    expect(read(fixture("0.1.0.pb.gz")).total(0)).to eq([110, 1_100_000_000, 110])
  end

  it "has the sums of its figures in each format" do
    lines = File.readlines(profiles.write(recording, file(".collapsed")))
    expect(lines.sum { |line| line[/ (\d+)\n/, 1].to_i }).to eq(1_100_000_000)
    told = JSON.parse(File.read(profiles.write(recording, file(".speedscope.json"))))
    expect(told["profiles"].sum { |one| one["weights"].sum }).to eq(1_100_000_000)
    expect(told["profiles"].map { |one| one["endValue"] }).to eq([850_000_000, 250_000_000])
  end

  it "charges all of the weight, by own, self and total" do
    rows = %w[own self total].to_h { |by| [by, Probescope::Profile::Summary.new(recording, 0, by).shown] }
    %w[own self].each { |by| expect(rows[by].sum { |row| row[:weight] }).to eq(1_100_000_000) }
    expect(rows["own"].map { |row| row.values_at(:function, :weight) }).to eq(
      [["Shop#pay", 700_000_000], ["Shop#serve", 250_000_000],
       ["Shop#<img src=x onerror=alert(1)>;;", 100_000_000], [nil, 50_000_000]]
    )
    pay = rows["own"].first
    expect(pay).to include(line_at: {file: "/srv/shop/app.rb", line: 9}, self_share: 0.636364)
    expect(pay[:called].map { |one| one.values_at(:function, :share) }).to eq([["JSON.parse", 0.545455]])
    expect(rows["total"].first).to include(function: "Shop#serve", total_share: 0.954545)
  end

  it "merges small stacks for speedscope when there are too many" do
    io = StringIO.new
    Probescope::Profile::Speedscope.new(recording, most_frames: 5).write(io)
    told = JSON.parse(io.string)["profiles"]
    expect(told.map { |one| one["name"] }).to all(end_with("(merged over time)"))
    expect(told.sum { |one| one["weights"].sum }).to eq(1_100_000_000)
  end

  describe "of another tool" do
    it "has a kind for each sample type" do
      path = profiles.write(recording, file(".pb.gz"))
      text = Zlib.gunzip(File.binread(path)).sub("probescope recording 1", "recording of a tool 12")
      File.binwrite(path, text)
      again = read(path)
      expect(again).to be_foreign
      expect(again.kinds.map(&:name)).to eq(%w[samples cpu])
      expect([again.total(0)[1], again.total(1)[1]]).to eq([110, 1_100_000_000])
    end
  end

  describe "that is none" do
    {"" => /sample type/, "\x1f\x8bcut" => /no recording/, "<html>" => /a page cannot be read back/,
     "{\"a\":1}" => /cannot be read back/, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff" => /64 bits/,
     "\x0a\x7fabc" => /ends within a field/}.each do |bytes, complaint|
      it "is refused: #{bytes.b.inspect}" do
        File.binwrite(file(".pb.gz"), bytes)
        expect { read(file(".pb.gz")) }.to raise_error(Probescope::Tracing::Misused, match(complaint))
      end
    end

    it "is refused, or read, wherever it is cut off or changed, and never a fault" do
      whole = Zlib.gunzip(File.binread(profiles.write(recording, file(".pb.gz"))))
      random = Random.new(21)
      80.times do |i|
        bytes = i.even? ? whole[0, random.rand(whole.size)] : whole.dup
        3.times { bytes.setbyte(random.rand(bytes.size), random.rand(256)) } unless i.even?
        File.binwrite(file(".pb.gz"), bytes)
        begin
          again = read(file(".pb.gz"))
          Probescope::Profile::Tables.new(again, "own", top: 10).text
        rescue Probescope::Tracing::Misused
          next
        end
      end
    end

    it "is refused when its metadata are of other types" do
      path = profiles.write(recording, file(".pb.gz"))
      whole = Zlib.gunzip(File.binread(path))
      {%("seconds":2.0) => %("seconds":"2"), %("end":"2023-11-14) => %("end":"2023-02-31),
       %("globs":[]) => %("globs":{}), %("pid":7,) => %("pid":0,)}.each do |from, to|
        File.binwrite(path, whole.sub(from, to))
        expect { read(path) }.to raise_error(Probescope::Tracing::Misused, /its metadata/), to
      end
    end

    it "is refused when it unpacks to more than the bound" do
      stub_const("Probescope::Tracing::Bounds::RECORDING_BYTES", 2 << 20)
      Zlib::GzipWriter.open(file(".pb.gz")) { |gzip| 10.times { gzip.write("\0" * (1 << 20)) } }
      expect { read(file(".pb.gz")) }.to raise_error(Probescope::Tracing::Misused, /more than 2 MiB/)
    end

    it "is refused when a newer version has made it" do
      path = profiles.write(recording, file(".pb.gz"))
      text = Zlib.gunzip(File.binread(path)).sub("probescope recording 1", "probescope recording 2")
      File.binwrite(path, text)
      expect { read(path) }.to raise_error(Probescope::Tracing::Misused, /newer probescope/)
    end
  end
end
