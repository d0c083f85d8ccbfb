# frozen_string_literal: true

require "spec_helper"
require "tempfile"
require "probescope/tracing/error"
require "probescope/tracing/info"

RSpec.describe "Reading probescope_info" do
  # Memory with the struct at address 64, in the layout of a library.
  def memory(probes, magic: "PSCOPE1", sequence: 4, probe_size: 160, appended: [], gap: 0, runtime: "ruby",
             flushes: 9)
    offset = 280 + (8 * appended.size) + gap
    head = [magic, offset + (probes.size * probe_size), 1, sequence, probes.size, probe_size, offset, runtime,
            "3.1.2", "0.1.0", 42, 3, 1 << 25, 4096, 0, flushes, 2, 77, "", *appended]
           .pack("a8 L<6 a16 a32 a16 l< L< Q<6 a128 Q<*")
    rows = probes.map { |row| row.pack("a24 L< L< Q< a120").ljust(probe_size, "\xff")[0, probe_size] }
    file = Tempfile.new("memory")
    file.binmode
    file.write("\xff".b * 64, head, "\xff".b * gap, *rows)
    file.flush
    file
  end

  def info(...) = Probescope::Tracing::Info.new(memory(...), 64)

  it "returns the header, and each probe by name" do
    snapshot = info([["stats__done", 1, 1, 4711, ""], ["line", 3, 0, 4713, "not under YJIT"]]).snapshot
    expect(snapshot).to include(runtime: "ruby", version: "3.1.2", library: "0.1.0", abi: 1, pid: 42,
                                flushes: 9, flags: %i[installed watcher])
    expect(snapshot[:probes]["stats__done"]).to include(state: "on", enabled: 1, semaphore: 4711)
    expect(snapshot[:probes]["line"]).to include(state: "refused", reason: "not under YJIT")
  end

  it "reads only the flush counter" do
    expect(info([], flushes: 123_456).flushes).to eq(123_456)
  end

  it "reads a newer library: a longer header, longer entries, an unknown state" do
    probe =
      info([["stats__done", 9, 1, 4711, "why"]], gap: 64, probe_size: 256).snapshot[:probes]["stats__done"]
    expect(probe).to include(state: "unknown", enabled: 1, semaphore: 4711, reason: "why")
  end

  it "reads the times of the attach and of the hooks, if the library has them" do
    line = [["line", 1, 1, 4713, ""]]
    expect(info(line, appended: [5_000, 7_000]).snapshot).to include(asked_ns: 5_000, hooks_in_ns: 7_000)
    expect(info(line, appended: [5_000, 0, 1], gap: 64).snapshot).to include(asked_ns: 5_000, hooks_in_ns: 0)
    older = info(line).snapshot
    expect(older).to include(asked_ns: nil, hooks_in_ns: nil)
    expect(older[:probes]["line"]).to include(state: "on")
  end

  it "reads the cost of looking, if the library has it" do
    expect(info([], appended: [5_000, 7_000, 30, 400]).looking).to eq([30, 400])
    expect(info([], appended: [5_000, 7_000, 30, 400]).snapshot)
      .to include(looking_ns: 30, looked_cpu_ns: 400)
    expect(info([], appended: [5_000, 7_000]).looking).to be_nil
    expect(info([], appended: [5_000, 7_000]).snapshot).to include(looking_ns: nil)
  end

  it "reads what ticks met, if the library has it" do
    expect(info([], appended: [*1..6, 1000, 900, 80]).ticked).to eq([1000, 900, 80])
    expect(info([], appended: [*1..6]).ticked).to be_nil
  end

  it "reads an older library: shorter entries, with missing fields empty" do
    probe = info([["stats__done", 1, 1, 4711, "cut"]], probe_size: 40).snapshot[:probes]["stats__done"]
    expect(probe).to include(state: "on", semaphore: 4711, reason: "")
  end

  it "reports a struct that is being written" do
    expect { info([], sequence: 5).snapshot }
      .to raise_error(Probescope::Tracing::Error, /does not finish writing/)
  end

  it "reports a mapped library that has not run its first function" do
    expect { info([], sequence: 0, probe_size: 0).snapshot }
      .to raise_error(Probescope::Tracing::Refused, /does not begin writing/)
  end

  it "rejects malformed values" do
    expect { info([], magic: "OTHER").snapshot }.to raise_error(Probescope::Tracing::Error)
    expect { info([["x", 0, 0, 0, ""]], probe_size: 8).snapshot }.to raise_error(Probescope::Tracing::Error)
    expect { info([["x", 0, 0, 0, ""]], probe_size: 2 << 20).snapshot }
      .to raise_error(Probescope::Tracing::Error)
    expect do
      info([["x", 0, 0, 0, ""]] * 129).snapshot
    end.to raise_error(Probescope::Tracing::Error, /129 probes/)
    expect { Probescope::Tracing::Info.new(Tempfile.new("empty"), 64).snapshot }.to raise_error(EOFError)
  end

  it "makes valid UTF-8 of every string" do
    expect(info([], runtime: "r\xff\xc3").snapshot[:runtime]).to be_valid_encoding
  end
end
