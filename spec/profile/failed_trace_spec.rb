# frozen_string_literal: true

require "support/profiles"
require "support/replay"

# What `record` writes when the trace fails.
RSpec.describe "A recording whose trace fails" do
  around { |example| Dir.mktmpdir { |dir| (@dir = dir) && example.run } }

  let(:file) { File.join(@dir, "shop.pb.gz") }

  # Runs `record` with these lines of stacks.bt, behind which the trace raises the error. Returns what it
  # raises itself, and its stderr.
  def record(lines, error)
    command = Support::Replay.command(["record", "-p", "7", "-o", file])
    command.define_singleton_method(:trace_processes) do
      told({is: "attached", pids: [7], by_pid: true})
      lines.each { |line| told({is: "output", line: JSON.generate({type: "printf", data: "#{line}\n"})}) }
      raise error
    end
    raised = nil
    _, err = Support::Replay.captured do
      command.send(:call)
    rescue StandardError => e
      raised = e
    end
    [raised, err]
  end

  def read = Probescope::Profile::PprofReader.read(file)
  def lines = Support::Profiles.lines("shop")

  it "has what arrived behind a lost line, and says that the line was lost" do
    raised, err = record(lines.reject { |line| line.start_with?("f 7 4") },
                         Probescope::Tracing::Error.new("the helper ended", "run the command again"))
    expect(raised.message).to eq("the helper ended; #{file} has what was recorded until then")
    expect(raised.next_step).to eq("run the command again")
    expect(read.total(0).first(2)).to eq([110, 1_100_000_000])
    expect(read.metadata[:lost]).to include(events: 1)
    expect(err).to include("1 events were lost between the kernel and bpftrace")
    expect(read.metadata[:warnings]).to include("1 events were lost between the kernel and bpftrace")
  end

  it "is written, too, after a fault of probescope" do
    raised, = record(lines, RuntimeError.new("odd"))
    expect(raised.message)
      .to match(/\Athis is a fault of probescope: RuntimeError: odd.*shop\.pb\.gz has what was recorded/)
    expect(read.total(0).first).to eq(110)
  end

  it "is not written before a second has ended" do
    raised, = record(lines.first(3), Errno::EPIPE.new)
    expect(raised).to be_a(Errno::EPIPE)
    expect(Dir.children(@dir)).to eq([])
  end
end
