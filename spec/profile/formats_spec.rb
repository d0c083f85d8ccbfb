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

  it "says in its tables what was lost, and how it was shortened" do
    recording.metadata.update(lost: {events: 0, rows: 2, samples: 1, paths: 4, later: 3},
                              truncated: ["threads are not told apart"],
                              warnings: ["1 samples could not be taken"],
                              not_covered: ["waits"])
    expect(Probescope::Profile::Tables.new(recording, "own", top: 10).text.lines.map(&:chomp)[2..8]).to eq(
      ["shortened: threads are not told apart",
       "2 events had no row of their own: the process's memory for names is full (see (overflow))",
       "1 samples could not be taken", "4 paths have no names: they were lost", "3 lost: later", "waits", ""]
    )
  end

  describe "with other files of the application" do
    def own(*globs)
      chosen = recording.choose_own(globs)
      [chosen.unmatched, recording.frames.select(&:own).map(&:path).uniq, recording.metadata[:own]]
    end

    it "keeps its choice where no file matches" do
      before = own[1]
      expect(before).to eq(["/srv/shop/app.rb"])
      expect(own("ap/*")).to eq([["ap/*"], before, {by: "process", globs: []}])
    end

    it "says which choice files were taken away from" do
      expect(own("shop/*", "gems/*").last).to eq(by: "glob", globs: ["shop/*", "gems/*"])
      expect(own("!gems/*").last).to eq(by: "glob", globs: ["shop/*", "gems/*", "!gems/*"])
      expect(recording.frames.select(&:own).map(&:path).uniq).to eq(["/srv/shop/app.rb"])
    end
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
      {%("seconds":2.0) => %("seconds":"2"), %("end":"2023-11-14) => %("end":"2023-02-31),
       %("globs":[]) => %("globs":{}), %("pid":7,) => %("pid":0,), %("wall_ns":2000000000) => %("wall_ns":{}),
       %("begin":"2023) => %("begin":"9999)}.each do |from, to|
        expect { changed(from, to) }.to raise_error(Probescope::Tracing::Misused, /its metadata/), to
      end
    end

    it "is refused when it has numbers that are too large" do
      large = "1#{"0" * 400}"
      {%("bucket_ns":1000000000) => %("bucket_ns":#{large}), %("wall_ns":2000000000) => %("wall_ns":#{large}),
       %("seconds":2.0) => %("seconds":#{large}), %("rows":2) => %("rows":#{large})}.each do |from, to|
        expect { changed(from, to) }.to raise_error(Probescope::Tracing::Misused, /its metadata/), to
      end
      location = protobuf.number(1, 90) + protobuf.bytes(4, protobuf.number(1, 90))
      function = protobuf.number(1, 90) + protobuf.number(2, (1 << 64) - 1)
      expect { with(5 => function, 4 => location, 2 => sample(90)) }
        .to raise_error(Probescope::Tracing::Misused, /a text that is not there/)
      name = "1#{"0" * 5000} worker"
      expect(changed("71 puma srv tp 001", name).series.map(&:thread_id)).to include(10**17)
    end

    # Messages of the file behind those of a recording. fields: {field => bytes of a message}
    def with(fields)
      more = fields.map { |field, bytes| protobuf.bytes(field, bytes) }.join
      File.binwrite(file(".pb.gz"), File.binread(fixture("shop.pb")) + more)
      read(file(".pb.gz"))
    end

    # A sample of cpu: the texts of the fixture have the label's key and value.
    def sample(*locations)
      label = protobuf.number(1, texts.index("kind")) + protobuf.number(2, texts.index("cpu"))
      protobuf.bytes(1, locations.map { |one| protobuf.varint(one) }.join) + protobuf.bytes(3, label)
    end

    def texts
      fields = protobuf::Reader.new(File.binread(fixture("shop.pb"))).enum_for(:each)
      fields.filter_map { |field, value| value if field == 6 }
    end

    def protobuf = Probescope::Profile::Protobuf

    # Reads the fixture with a text of it replaced.
    def changed(from, to)
      bytes = +"".b
      protobuf::Reader.new(File.binread(fixture("shop.pb"))).each do |field, value|
        next bytes << protobuf.number(field, value) if value.is_a?(Integer)

        bytes << protobuf.bytes(field, field == 6 ? value.sub(from.b, to.b) : value)
      end
      File.binwrite(file(".pb.gz"), bytes)
      read(file(".pb.gz"))
    end

    it "is refused when it has more parts than the bound: samples, texts, lines or labels of two bytes" do
      stub_const("Probescope::Tracing::Bounds::RECORDING_PARTS", 1000)
      labels = Array.new(2000) { |i| protobuf.bytes(3, protobuf.number(3, i + 1)) }.join
      ["\x12\0" * 2000, "\x32\0" * 2000, protobuf.bytes(4, "\x22\0" * 2000),
       protobuf.bytes(2, labels)].each do |more|
        File.binwrite(file(".pb.gz"), File.binread(fixture("shop.pb")) + more)
        expect { read(file(".pb.gz")) }.to raise_error(Probescope::Tracing::Misused, /more than 1000 parts/)
      end
    end

    it "is refused when a sample has more figures than there are types" do
      expect { with(2 => protobuf.bytes(2, "\1" * 1000)) }
        .to raise_error(Probescope::Tracing::Misused, /more than 2 numbers/)
    end

    it "is refused when a stack is deeper than the bound, by its locations or their lines" do
      line = protobuf.bytes(4, protobuf.number(1, 1))
      {5000 => [90], 3000 => [90, 90], 1 => [90] * 5000}.each do |lines, locations|
        expect { with(4 => protobuf.number(1, 90) + (line * lines), 2 => sample(*locations)) }
          .to raise_error(Probescope::Tracing::Misused, /more than 4096/), lines.to_s
      end
    end

    it "is read as a whole when it has several gzip members" do
      whole = File.binread(fixture("shop.pb"))
      parts = [whole[0, 700], whole[700..]].map { |part| Zlib.gzip(part) }
      File.binwrite(file(".pb.gz"), parts.join)
      expect(read(file(".pb.gz")).total(0)).to eq([110, 1_100_000_000, 110])
      File.binwrite(file(".pb.gz"), "#{parts.join}\0more")
      expect { read(file(".pb.gz")) }.to raise_error(Probescope::Tracing::Misused, /no recording/)
    end

    it "is shown without escape sequences, whatever a type and the metadata have" do
      foreign = File.binread(fixture("shop.pb")).sub("probescope recording 1", "recording of a tool 12")
      File.binwrite(file(".pb.gz"), foreign.sub("\x32\x03cpu".b, "\x32\x0dc\e]52;c;aGk=\a".b))
      [read(file(".pb.gz")), changed(%("name":"cpu"), %("name":"\\u001b[2Jcpu")),
       changed(%("truncated":[]), %("truncated":["\\u001b[2J"]))].each do |again|
        text = Probescope::Profile::Tables.new(again, "self", top: 10).text
        expect(text).to include('\e').and match(/\A[^\e\a]*\z/)
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
