# frozen_string_literal: true

require "open3"
require "spec_helper"
require "support/profiles"
require "support/python"
require "probescope/commands/convert"
require "probescope/commands/diff"

# `convert` and `diff` of gem and wheel.
RSpec.describe "convert and diff" do
  around { |example| Dir.mktmpdir { |dir| (@dir = dir) && example.run } }

  fixture = File.join(Support::ROOT, "spec/fixtures/profile/0.1.0.pb.gz")

  # {status:, out:, err:} of the gem's command. Raises where that of the wheel answers otherwise.
  def both(*words)
    programs = [[{}, RbConfig.ruby, File.join(Support::ROOT, "exe/probescope")],
                [Support::Python.env(loaded: false), Support::Python.interpreter, "-m", "probescope"]]
    gem, wheel = programs.map do |command|
      out, err, status = Open3.capture3(*command, *words)
      err = err.lines.reject { |line| line.start_with?("  try: ") }.join.gsub(/; near: .*/, "")
      {status: status.exitstatus, out: out, err: err}
    end
    expect(wheel).to eq(gem)
    gem
  end

  def refusal(command, *words)
    command.new.run(words)
    nil
  rescue Probescope::CLI::Usage => e
    e.message
  end

  it "refuse options that have no meaning" do
    page = File.join(@dir, "shop.html")
    {%w[--json] => "--json is for the tables, and -o writes a file",
     %w[--by self] => "--by is for the tables, and -o writes a file",
     %w[--top 0] => "--top is for the tables, and -o writes a file",
     %w[--kind cpu] => "--kind is for .collapsed, which has one kind"}.each do |words, complaint|
      expect(refusal(Probescope::Commands::Convert, fixture, "-o", page, *words)).to eq(complaint)
    end
    diff = Probescope::Commands::Diff
    expect(refusal(diff, fixture, fixture, "-o", page, "--json")).to match(/\A--json is for the tables/)
    %w[-5 101 x].each do |least|
      expect(refusal(diff, fixture, fixture, "--min", least))
        .to eq("--min takes 0 to 100 percent, and not \"#{least}\"")
    end
    expect(Dir.children(@dir)).to eq([])
  end

  it "show the same tables, with losses and what cannot be told" do
    expect(both("convert", fixture)[:out]).to include("2 events had no row of their own",
                                                      "1 samples could not be taken")
    told = both("diff", fixture, fixture, "--min", "5%")
    expect(told[:out]).to include("changes cannot be told from chance")
    expect(told[:err]).to include("the second recording has 2 spans of time, and 5 are needed",
                                  "after: 1 samples could not be taken")
  end

  # One long second hides a change from the test, and the table must not say that nothing changed.
  it "name the largest difference where no change can be told from chance" do
    before, after = {"before" => 450, "after" => 0}.map do |name, ms|
      recording = Support::Profiles.seconds(8) do |second|
        {"Shop#pay" => second == 1 ? 2 * ms : ms, "Shop#log" => 50}
      end
      File.join(@dir, "#{name}.pb.gz").tap { |path| Support::Profiles.write(recording, path) }
    end
    expect(both("diff", before, after)[:out])
      .to end_with("  no change can be told from chance; the largest difference is that of Shop#pay: " \
                   "506 ms before, 0 ns after. Record for longer\n")
    expect(both("diff", before, before)[:out]).to end_with("  no function changed by more than chance\n")
  end

  it "say where other files count as the application's" do
    other = File.join(@dir, "other.pb.gz")
    both("convert", fixture, "--own", "gems/*", "-o", other, "--force")
    expect(both("diff", fixture, other)[:err])
      .to include("what counts as the application's differs: process before, glob gems/* after")
    told = both("convert", fixture, "--own", "nowhere/*")
    expect(told[:err]).to include("the application's files are the same as before")
    expect(told[:out]).to eq(both("convert", fixture)[:out])
  end
end
