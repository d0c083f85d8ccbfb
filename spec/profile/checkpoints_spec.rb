# frozen_string_literal: true

require "support/profiles"
require "probescope/profile/checkpoints"

# A checkpoint is a whole recording, written beside the trace.
RSpec.describe Probescope::Profile::Checkpoints do
  around { |example| Dir.mktmpdir { |dir| (@dir = dir) && example.run } }

  profiles = Support::Profiles
  let(:destination) { Probescope::Profile::Destination.new(File.join(@dir, "shop.html")) }
  let(:recording) { profiles.recording(profiles.lines("shop")) }

  def written(checkpoints)
    await("a checkpoint") do
      checkpoints.step
      File.exist?(destination.part)
    end
    checkpoints.stop
  end

  it "are pprof files, whatever the format, and are gone when the file is written" do
    written(described_class.new(destination, every: 0, say: ->(text) { raise text }) { recording })
    expect(Probescope::Profile::PprofReader.read(destination.part).total(0)).to eq(recording.total(0))
    destination.write(recording)
    expect(Dir.children(@dir)).to eq(["shop.html"])
  end

  it "that cannot be written are told, and the recording goes on" do
    said = []
    checkpoints = described_class.new(destination, every: 0, say: ->(text) { said << text }) { raise IOError }
    await("the end of the child") { checkpoints.step && said.any? || said.any? }
    checkpoints.stop
    expect(said).to all(match(/shop\.html\.part could not be written; the recording goes on/))
    expect(destination.write(recording)).to be_positive
  end
end
