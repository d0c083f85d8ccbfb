# frozen_string_literal: true

require "spec_helper"
require "json"
require "probescope/tracing/complaint"

# Complaints of bpftrace about something missing, and what users read. tests/test_command.py checks
# the wheel.
RSpec.describe Probescope::Tracing::Complaint do
  JSON.parse(File.read(File.join(Support::ROOT, "spec/fixtures/complaints.json"))).each do |told|
    it "has a sentence for bpftrace's complaint about #{told["of"]}, and shows all its text" do
      error = described_class.error(told["text"], "failed", "probescope doctor")
      expect(error.message).to start_with("bpftrace failed: #{told["means"]}")
      kept = told["text"].lines.map(&:strip).reject { |line| line.match?(/\A(Attaching|WARNING)/) }
      expect(error.message).to end_with("; it says: #{kept.join("; ")}")
      expect([nil, "probescope doctor"]).not_to include(error.next_step)
    end
  end

  it "shows an unknown complaint in full, and the number of lines that are left out" do
    error = described_class.error("ERROR: of a new kind\nmore\n", "failed", "probescope doctor")
    expect([error.message, error.next_step])
      .to eq(["bpftrace failed; it says: ERROR: of a new kind; more", "probescope doctor"])
    expect(described_class.error("", "failed", nil).message).to eq("bpftrace failed; it ended by itself")
    long = described_class.error("#{"line " * 2_000}\n" * 30, "failed", nil).message
    expect(long).to end_with("and 10 more lines").and include(("line " * 2_000).strip)
  end
end
