# frozen_string_literal: true

require "spec_helper"
require "support/host_helpers"
require "probescope/tracing/selection"
require "probescope/tracing/strangers"

RSpec.describe Probescope::Tracing::Strangers do
  before { @now = 100.0 }

  def strangers = @strangers ||= described_class.new { @now }

  # Returns the moments at which the block was called in these seconds, with four looks a second.
  def looks(pid, seconds)
    (0..(seconds * 4)).filter_map do |step|
      @now = 100 + (step / 4.0)
      asked = nil
      strangers.look(pid) { (asked = @now) && nil }
      asked && (asked - 100)
    end
  end

  it "reads a child without the library after pauses that double, up to five seconds" do
    expect(looks(Process.pid, 20)).to eq([0.0, 0.25, 0.75, 1.75, 3.5, 6.75, 11.75, 16.75])
  end

  it "reads it again at once when the child runs another program, or another child has its number" do
    child = keep(Support::Child.new("sh", "-c", "read -r _; exec cat", stdin: true))
    expect(looks(child.pid, 3).size).to eq(4)
    before = File.readlink("/proc/#{child.pid}/exe")
    child.puts("")
    await("its exec") { File.readlink("/proc/#{child.pid}/exe") != before }
    @now = 103.1
    expect { |block| strangers.look(child.pid, &block) }.to yield_control
  end

  it "returns what it finds, and drops ended processes" do
    expect(strangers.look(Process.pid) { :found }).to eq(:found)
    expect(strangers.look(Process.pid) { :again }).to eq(:again)
    strangers.look(Process.pid) { nil }
    strangers.keep([])
    expect { |block| strangers.look(Process.pid, &block) }.to yield_control
    child = keep(Support::Child.new("true"))
    child.wait
    expect { |block| strangers.look(child.pid, &block) }.not_to yield_control
  end

  it "reads children's mappings eight times in twenty seconds, and not a hundred times" do
    shell = keep(Support::Child.new("sh", "-c", "sleep 600 & sleep 600 & wait"))
    children = await("its children") do
      (found = Probescope::Tracing::Descendants.of(shell.pid)).size == 2 && found
    end
    now = 100.0
    order = Probescope::Tracing::Order.of(pids: [shell.pid], workers: true)
    selection = Probescope::Tracing::Selection.new(order, now: -> { now })
    reads = Hash.new(0)
    allow(Probescope::Tracing::ProbedProcess)
      .to(receive(:try).and_wrap_original { |try, pid| (reads[pid] += 1) && try.call(pid) })
    expect { selection.processes }.to raise_error(Probescope::Tracing::Error)
    101.times do |step|
      now = 100 + (step / 5.0)
      selection.look(selection.children) { true }
    end
    expect(children.map { |pid| reads[pid] }).to all(be_between(8, 12))
  end
end
