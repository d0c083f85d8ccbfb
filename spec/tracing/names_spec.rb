# frozen_string_literal: true

require "spec_helper"
require "probescope/tracing/names"

RSpec.describe Probescope::Tracing::Names do
  def started(title) = target("#{title}; $stdout.sync = true; puts :ready; sleep", loaded: false).ready

  # GIVEN a server that Ruby runs, which the kernel names after Ruby, THEN its title is its name.
  # Without a title it has the kernel's name.
  it "returns a server's title, or the kernel's name" do
    ["Process.setproctitle('ps-desk: cluster worker 0: 4711 [shop]')",
     "$0 = 'ps-desk 7.2.1 (tcp://127.0.0.1:9292)'"].each do |title|
      server = started(title)
      expect(described_class.best(server.pid)).to eq("ps-desk")
      expect(%w[ps-desk ps cluster ruby/x].select { |name| described_class.match?(server.pid, name) })
        .to eq(%w[ps-desk])
      expect(described_class.match?(server.pid, File.read("/proc/#{server.pid}/comm").chomp)).to be(true)
    end
    plain = started("true")
    expect(described_class.best(plain.pid)).to eq(File.read("/proc/#{plain.pid}/comm").chomp)
    expect(described_class.match?(Process.pid, File.read("/proc/self/comm").chomp)).to be(true)
  end

  it "returns no name for an ended process, and valid text for an invalid name" do
    gone = started("true")
    gone.stop(:KILL)
    expect(described_class.best(gone.pid)).to be_nil
    expect(described_class.match?(gone.pid, "ruby")).to be(false)
    expect(described_class.best(started("$0 = \"ps\\xff: x\".b").pid)).to eq("ps\u{fffd}")
  end
end
