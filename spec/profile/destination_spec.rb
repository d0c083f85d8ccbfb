# frozen_string_literal: true

require "support/profiles"

# The file of a recording gets its name only when it is complete, and no file of others is lost.
RSpec.describe Probescope::Profile::Destination do
  around { |example| Dir.mktmpdir { |dir| (@dir = dir) && example.run } }

  profiles = Support::Profiles
  let(:path) { File.join(@dir, "shop.pb.gz") }
  let(:recording) { profiles.recording(profiles.lines("shop")) }

  def destination(**options) = described_class.new(path, **options)
  def total(file) = Probescope::Profile::PprofReader.read(file).total(0)
  def names = Dir.children(@dir).sort

  it "leaves the other files of its folder, also those with a name like its own" do
    File.write("#{path}.new", "theirs")
    File.symlink(File.join(@dir, "nothing"), "#{path}.part.new")
    destination.write(recording)
    expect(names).to eq(%w[shop.pb.gz shop.pb.gz.new shop.pb.gz.part.new])
    expect(File.read("#{path}.new")).to eq("theirs")
  end

  it "does not replace a file that appears meanwhile, and keeps the recording" do
    one = destination
    File.write(path, "theirs")
    expect { one.write(recording) }
      .to raise_error(Probescope::Tracing::Error, /shop\.pb\.gz: File exists; the complete file is .*\.new\z/)
    expect(File.read(path)).to eq("theirs")
    kept = names.reject { |name| name == "shop.pb.gz" }
    expect(kept.size).to eq(1)
    expect(total(File.join(@dir, kept.first))).to eq(recording.total(0))
  end

  it "replaces a file with force, also one that appears meanwhile, and removes what was left of another" do
    one = destination(force: true)
    [path, "#{path}.part"].each { |name| File.write(name, "old") }
    one.write(recording)
    expect(names).to eq(["shop.pb.gz"])
    expect(total(path)).to eq(recording.total(0))
  end

  it "leaves the checkpoint of another recording" do
    one = destination
    File.write("#{path}.part", "theirs")
    one.write(recording)
    expect(names).to eq(%w[shop.pb.gz shop.pb.gz.part])
  end

  it "refuses a link to nothing" do
    File.symlink(File.join(@dir, "nothing"), path)
    expect { destination }.to raise_error(Probescope::Tracing::Misused, /shop\.pb\.gz exists/)
  end

  it "refuses a place that takes no file before anything is recorded" do
    long = File.join(@dir, "#{"a" * 240}.pb.gz") # the name of its checkpoint is too long
    {long => "File name too long", "#{path}/a.pb.gz" => "No such file or directory"}.each do |name, reason|
      expect { described_class.new(name) }.to raise_error(Probescope::Tracing::Misused, /: #{reason}\z/)
    end
    expect(names).to eq([])
  end

  it "leaves nothing of a write that fails" do
    one = destination
    expect { one.save { raise ArgumentError } }.to raise_error(ArgumentError)
    expect(names).to eq([])
  end
end
