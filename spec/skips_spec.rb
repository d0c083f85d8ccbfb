# frozen_string_literal: true

require "open3"

# The gate may leave out these tests. Every other skip fails there.
RSpec.describe "What the gate skips" do
  entries = Support::Skips.all

  it "has ten entries at most, each with a reason" do
    expect(entries.size).to be <= Support::Skips::MOST
    expect(entries.map(&:because)).to all(match(/\S.{20,}/))
    expect(entries.map(&:what)).to all(match(/\S.{8,}/))
  end

  it "has no entry past its last day" do
    expect(entries.select { |entry| entry.last_day < Date.today }.map(&:what)).to eq([])
  end

  it "is decided by the day on which an entry is read" do
    entry = Support::Skips::Entry.new(what: "no arg6", because: "old", until: "2026-05-31")
    expect(entry.covers?("bpftrace 0.17 knows no arg6", Date.new(2026, 5, 31))).to be(true)
    expect(entry.covers?("bpftrace 0.17 knows no arg6", Date.new(2026, 6, 1))).to be(false)
    expect(entry.covers?("no perf", Date.new(2026, 5, 31))).to be(false)
  end

  # Returns the exit status and the output of RSpec for one example that skips for this reason.
  def rspec(reason, gate:)
    Dir.mktmpdir do |directory|
      File.write("#{directory}/one_spec.rb", <<~RUBY)
        require #{File.join(Support::ROOT, "spec/support/skips").inspect}
        RSpec.configure { |config| config.include Support::Skips::InExamples }
        RSpec.describe("one") { it("skips") { skip #{reason.inspect} } }
      RUBY
      Open3.capture2e({ "PROBESCOPE_GATE" => gate }, RbConfig.ruby, "-S", "bundle", "exec", "rspec",
                      "--options", File::NULL, "#{directory}/one_spec.rb", chdir: Support::ROOT)
    end
  end

  it "fails in RSpec if it is not listed, and only in the gate" do
    listed = entries.first.what
    expect(rspec("for fun", gate: "1")).to match([/1 example, 1 failure/, have_attributes(exitstatus: 1)])
    expect(rspec("because it #{listed}", gate: "1"))
      .to match([/1 example, 0 failures, 1 pending/, be_success])
    expect(rspec("for fun", gate: nil)).to match([/1 example, 0 failures, 1 pending/, be_success])
  end

  it "fails in a Rake task or a part of CI if it is not listed" do
    told = lambda do |reason|
      Open3.capture2e({ "PROBESCOPE_GATE" => "1" }, RbConfig.ruby, File.join(__dir__, "support/skips.rb"),
                      reason)
    end
    expect(told.call("for fun")).to match([/\Askipped: for fun\nFAILED: /, have_attributes(exitstatus: 1)])
    expect(told.call(entries.first.what)).to match(["skipped: #{entries.first.what}\n", be_success])
  end

  it "does not include a part that ran out of time" do
    part = lambda do |seconds, *command|
      Open3.capture2e(File.join(Support::ROOT, ".ci/part"), "/dev/null", seconds.to_s, *command)
    end
    expect(part.call(60, "true")).to match(["", be_success])
    expect(part.call(60, "sh", "-c", "exit 3").last.exitstatus).to eq(3)
    expect(part.call(1, "sleep", "60"))
      .to match([/FAILED: out of time: sleep 60/, have_attributes(exitstatus: 124)])
    expect(part.call(0, "true")).to match([/FAILED: out of time/, have_attributes(exitstatus: 124)])
  end
end
