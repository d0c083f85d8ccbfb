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

  # The child waits in the middle of its file.
  it "that are under way when the recording ends leave nothing" do
    entered, waits = IO.pipe, IO.pipe
    recording.define_singleton_method(:keys_by_node) do
      entered.last.syswrite("x")
      waits.first.read
      super()
    end
    checkpoints = described_class.new(destination, every: 0, say: ->(text) { raise text }) { recording }
    checkpoints.step
    entered.first.readpartial(1)
    checkpoints.stop
    destination.write(profiles.recording(profiles.lines("shop")))
    expect(Dir.children(@dir)).to eq(["shop.html"])
  end

  # No test may take memory or numbers of processes from others: a user without a process does.
  it "for which the machine has no process are told, and the recording goes on" do
    skip "only root can become another user" unless Process.uid.zero?
    File.chmod(0o777, @dir)
    reader, writer = IO.pipe
    pid = Process.fork do
      Process::Sys.setuid(65_534)
      Process.setrlimit(:NPROC, 0)
      checkpoints = described_class.new(destination, every: 0, say: writer.method(:puts)) { recording }
      checkpoints.step
      writer.puts(destination.write(recording))
    ensure
      exit!
    end
    writer.close
    Process.wait(pid)
    expect(reader.read).to match(/\Athe checkpoint .*\.part could not be written; the recording goes on\n\d/)
  end

  # While a process is silent, nobody asks whether the checkpoint is written.
  it "come as often after a long silence" do
    checkpoints = described_class.new(destination, every: 0, say: ->(text) { raise text }) { recording }
    checkpoints.step
    await("the first one") { File.exist?(destination.part) }
    before, began = File.mtime(destination.part), Support::Await.monotonic
    await("the end of the silence") { Support::Await.monotonic - began > 5 }
    await("the second one", within: 90) do
      checkpoints.step
      File.mtime(destination.part) != before
    end
    checkpoints.stop
  end
end
