# frozen_string_literal: true

require "spec_helper"
require "support/host_helpers"
require "probescope/tracing/links"
require "probescope/tracing/order"
require "probescope/tracing/selection"
require "probescope/tracing/session"

RSpec.describe "Choosing processes" do
  def selection(*pids, **options)
    order = Probescope::Tracing::Order.of(pids: pids, **options.slice(:comm, :workers))
    Probescope::Tracing::Selection.new(order, **options.slice(:most))
  end

  it "selects each process once, and refuses more than the limit" do
    one, two = Array.new(2) { host_target.pid }
    expect(selection(one, two, one).processes.map(&:pid)).to eq([one, two])
    by_name = selection(one, comm: "host_target").processes.map(&:pid)
    expect(by_name).to include(one, two)
    expect(by_name.uniq).to eq(by_name)
    expect { selection(one, two, most: 1).processes }
      .to raise_error(Probescope::Tracing::Error, /2 processes are too many.*1 at most/)
    some = selection(comm: "host_target", most: 1)
    expect([some.processes.size, some.notes])
      .to match([1, [/processes are too many for one command: \d+ are left out/]])
  end

  it "finds grandchildren" do
    shell = keep(Support::Child.new("sh", "-c", "sh -c '#{Support::HostTarget.binary}; true'; true"))
    shell.await_line(/\Aready$/)
    expect(selection(shell.pid, workers: true).processes.map(&:name)).to eq(["host_target"])
  end

  # In use, the command runs in a container, with bpftrace 0.24.2 or later. Here it runs outside
  # with any bpftrace, and only the test for the initial PID namespace is replaced.
  it "names a later child in a PID namespace below, for a command and for the bridge", :bpf do
    allow(Probescope::Tracing::Bpftrace).to receive(:initial_pids?).and_return(false)
    binary = Support::HostTarget.binary
    below = "unshare --pid --fork --kill-child #{binary}"
    shell = keep(Support::Child.new("sh", "-c", "#{binary} & read go; #{below} & wait", stdin: true))
    shell.await_line(/\Aready$/)
    order = Probescope::Tracing::Order.of(pids: [shell.pid], workers: true)
    said = []
    command = Probescope::Tracing::Session.new(order, ["stats__done"])
    bridge = Probescope::Tracing::Session.new(order, ["stats__done"], numbered: true) do |error|
      said << error.in_one_line
    end
    [command, bridge].each(&:choose)
    expect([command.notes, said]).to eq([[], []])

    shell.puts("go")
    await("the child below") { shell.out.scan("ready").size == 2 }
    late = Probescope::Tracing::Descendants.of(shell.pid).last
    command.arrivals { true }
    bridge.follow { true }
    note = "process #{late} is in a PID namespace below this one, where bpftrace has no number for it; try: "
    expect([command.notes, said])
      .to eq([["#{note}trace it by itself (-p #{late}), or run the command on the host"],
              ["#{note}run the command on the host"]])
    expect([command, bridge].flat_map(&:members).map(&:pid)).not_to include(late)
  end
end

RSpec.describe Probescope::Tracing::Links do
  it "refuses a folder that others may write to" do
    Dir.mktmpdir do |folder|
      File.chmod(0o777, folder)
      expect { described_class.new(folder) }
        .to raise_error(Probescope::Tracing::Error, /not a folder that only its owner may enter/)
      File.chmod(0o700, folder)
      links = described_class.new(folder)
      expect(links.pattern).to match(%r{\A#{folder}/\h{16}/\*\.so\z})
      links.remove
      expect(Dir.children(folder)).to be_empty
    end
  end

  it "refuses a link in place of the folder" do
    Dir.mktmpdir do |folder|
      File.symlink(folder, File.join(folder, "link"))
      expect { described_class.new(File.join(folder, "link")) }.to raise_error(Probescope::Tracing::Error)
    end
  end

  it "removes only folders whose lock is free" do
    Dir.mktmpdir do |folder|
      links = described_class.new(folder)
      FileUtils.mkdir_p(File.join(folder, "stale"))
      File.write(File.join(folder, "stale/lock"), "")
      described_class.sweep(folder)
      expect(Dir.children(folder).size).to eq(1)
      links.remove
    end
  end

  it "keeps its folder when another command sweeps before its lock is held" do
    Dir.mktmpdir do |folder|
      sweeps = 1
      allow(File).to receive(:open).and_wrap_original do |open, *arguments, &block|
        open.call(*arguments, &block).tap { described_class.sweep(folder) if (sweeps -= 1) >= 0 }
      end
      links = described_class.new(folder)
      expect(Dir.children(folder)).to eq([File.basename(File.dirname(links.pattern))])
      links.remove
    end
  end
end
