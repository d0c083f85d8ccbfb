# frozen_string_literal: true

require "spec_helper"
require "json"
require "probescope/host/complaint"

# What bpftrace said when something was missing, and what users are told. tests/test_command.py has
# the wheel's side.
RSpec.describe Probescope::Host::Complaint do
  JSON.parse(File.read(File.join(Support::ROOT, "spec/fixtures/complaints.json"))).each do |told|
    it "has a sentence for what bpftrace #{told["of"]} says, and shows all of that" do
      error = described_class.error(told["text"], "failed", "probescope doctor")
      expect(error.message).to start_with("bpftrace failed: #{told["means"]}")
      kept = told["text"].lines.map(&:strip).reject { |line| line.match?(/\A(Attaching|WARNING)/) }
      expect(error.message).to end_with("; it says: #{kept.join("; ")}")
      expect([nil, "probescope doctor"]).not_to include(error.next_step)
    end
  end

  it "shows what it does not know, whole, and lines that are too many by their number" do
    error = described_class.error("ERROR: of a new kind\nmore\n", "failed", "probescope doctor")
    expect([error.message, error.next_step])
      .to eq(["bpftrace failed; it says: ERROR: of a new kind; more", "probescope doctor"])
    expect(described_class.error("", "failed", nil).message).to eq("bpftrace failed; it ended by itself")
    long = described_class.error("#{"line " * 2_000}\n" * 30, "failed", nil).message
    expect(long).to end_with("and 10 more lines").and include(("line " * 2_000).strip)
  end
end
