# frozen_string_literal: true

require "spec_helper"
require "support/host_helpers"
require "support/schemas"

# Runs `python -m probescope trace` on the host_target whose figures tables_spec.rb describes.
# recorded_spec.rb checks how bpftrace's output is read; this spec checks how bpftrace is run.
RSpec.describe "python -m probescope trace", :bpf do
  def wheel(name, process, *options, env: {})
    words = ["-m", "probescope", "trace", name, "-p", process.pid, *options].map(&:to_s)
    environment = ENV.to_h.merge("PYTHONPATH" => Support::Python::PACKAGE, **env)
    child = keep(Support::Child.new(Support::Python.interpreter, *words, env: environment))
    status = child.wait(within: 60)
    Support::Processes::Result.new(status: status, out: child.out, err: child.err)
  end

  def burst(*options) = host_target("--burst", 4, *options)

  # Leaves out what differs between two processes with the same figures.
  def same(result)
    result.except("pids", "begin", "end", "processes")
          .merge("rows" => result["rows"].map { |row| row.except("at") })
  end

  {"calls" => %w[calls], "alloc_by_request" => %w[alloc --by-request],
   "slow1ms" => %w[slow --threshold 1ms]}.each do |name, command|
    rest = {full: "another one of its kind"} unless name == "calls"
    it "#{name}: prints the same as the gem's command", **rest.to_h do
      told = wheel(name, burst, "-d", 3, "--json").json
      expect(told).to fit_the_schema_of(command.first)
      expect(same(told)).to eq(same(probescope(*command, "-p", burst.pid, "-d", 3, "--json").json))
    end
  end

  it "stat and flow: print each line as the same object as the gem's" do
    stat, flow = %w[stat flow].map do |name|
      wheel(name, burst, "-d", 3, "--json").out.lines.map { |line| JSON.parse(line) }
    end
    expect(stat).to fit_the_schema_of("stat")
    expect(stat)
      .to all(include("cpu_ns" => 500_000_000, "calls" => 6, "raises" => 6, "bytes" => 240, "samples" => 3))
    expect(stat.size).to eq(4)
    expect(flow).to fit_the_schema_of("flow")
    expect(flow.map { |event| event.values_at("event", "function", "outcome") })
      .to include(["enter", "Parser#step0", nil], ["leave", "Parser#step1", "raised"])
  end

  it "hot: names Ruby's builtins in which methods spend their time, like the gem's command" do
    skip "ticks were not tried on this version of Ruby" unless Support::RUBY_TICKS
    process = target(<<~RUBY).ready
      require "zlib"
      TEXT = "x" * 1_000_000
      def sum = Zlib.crc32(TEXT)
      $stdout.sync = true
      puts "ready"
      loop { sum }
    RUBY
    [wheel("hot", process, "-d", 3, "--by", "self", "--json"),
     probescope("hot", "-p", process.pid, "-d", 3, "--by", "self", "--json")].each do |told|
      expect(told.json).to fit_the_schema_of("hot")
      row = told.json["rows"].find { |one| one["function"] == "Object#sum" }
      expect(row["builtins"].map { |one| one["function"] }).to eq(["Zlib.crc32"])
      expect(row["builtins"].sum { |one| one["share"] }).to be_within(0.05).of(row["self_share"])
    end
    expect(wheel("hot", process, "-d", 2, "--by", "self").out)
      .to match(/^SELF .* IN C$/).and match(/Object#sum .* % Zlib\.crc32$/)
  end

  it "has the costliest row whatever its name, every row in JSON, and the number of rows that the " \
     "table leaves out" do
    out = wheel("exceptions", burst("--rows", 30), "-d", 3).out
    expect(out.lines.grep(/Error\d/).map { |line| line[/Error(\d+)/, 1].to_i }).to eq((10..29).to_a.reverse)
    expect(out).to end_with("\n10 more rows; --top 0 shows all\n")
    result = wheel("exceptions", burst("--rows", 30), "-d", 3, "--json", env: {"PROBESCOPE_MAP_KEYS" => "25"})
    expect(result.json["rows"].size).to eq(25)
    expect(result.json["lost"]).to include("map_full" => 5 * 4)
    expect(result.json["warnings"].join)
      .to include("bpftrace's maps are full; give them room: PROBESCOPE_MAP_KEYS=100")
  end

  it "fails when it has no figures" do
    stopped = host_target
    stopped.signal(:STOP)
    result = wheel("calls", stopped, "-d", 1)
    expect([result.status.exitstatus, result.out]).to eq([1, ""])
    expect(result.err).to include("nothing is known of process #{stopped.pid}: no interval ended")
  end
end
