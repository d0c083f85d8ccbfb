# frozen_string_literal: true

require "spec_helper"
require "support/host_helpers"
require "support/schemas"

# Compares docs/schema with the output of the commands of gem and wheel.
RSpec.describe "The JSON of the commands" do
  commands = Dir[File.join(Support::ROOT, "docs/schema/*.json")].map { |path| File.basename(path, ".json") }
  commands -= %w[recording] # no command
  traced = commands - %w[stat flow ps status doctor record convert diff]

  it "has a schema for each command that prints JSON" do
    printing = Dir[File.join(Support::ROOT, "lib/probescope/commands/*.rb")].select do |path|
      File.read(path).match?(/--json"|< (Table|Stream)/)
    end
    expect(printing.map { |path| File.basename(path, ".rb") } - %w[table stream]).to match_array(commands)
  end

  it "is compared with valid schemas, which reject missing and unknown fields, and other types" do
    commands.each do |command|
      expect(JSONSchemer.validate_schema(JSON.parse(File.read(Support::Schemas.path(command)))).to_a)
        .to eq([]), command
    end
    row = {"kind" => "minor", "count" => 1, "total_ns" => 2, "mean_ns" => 2, "max_ns" => 2,
           "live_objects" => nil, "freed_objects" => 3,
           "histogram" => [{"min" => 1, "max" => nil, "count" => 1}], "wall_share" => 0.5}
    lost = %w[events rows map_full samples details unread untold].to_h { |name| [name, 0] }
    whole = {"schema" => 1, "command" => "gc", "pids" => [1], "begin" => "2026-01-01T00:00:00.000000Z",
             "end" => nil, "seconds" => 1.0, "cpu_share" => nil, "looking_share" => nil, "processes" => [],
             "rows" => [row], "rows_left_out" => 0, "not_covered" => ["not in it: all"], "lost" => lost,
             "others" => {"processes" => 0, "rows" => 0}, "warnings" => []}
    expect(whole).to fit_the_schema_of("gc")
    [whole.except("schema"), whole.merge("schema" => 2), whole.merge("more" => 1),
     whole.merge("begin" => "now"),
     whole.merge("rows" => [row.merge("count" => "1")]), whole.merge("rows" => [row.except("kind")]),
     whole.merge("lost" => lost.merge("others" => 1))].each do |wrong|
      expect(Support::Schemas.complaints("gc", wrong)).not_to eq([])
    end
  end

  traced.each do |command|
    it "#{command}: is of the shape that docs/schema/#{command}.json has", :bpf do
      pair = [host_target("--burst", 2), host_target("--burst", 2, "--rows", 1)]
      processes = pair.flat_map { |process| ["-p", process.pid] }
      options = %w[alloc exceptions hot slow].include?(command) ? ["--by-request"] : []
      event = command == "on" ? %w[tracepoint:syscalls:sys_enter_write --sum count --stack 2] : []
      result = probescope(command, *event, *processes, "-d", 1, "--json", "--by-pid", *options)
      expect(result.json).to fit_the_schema_of(command)
      expect(result.json["rows"]).not_to be_empty
    end
  end

  it "stat and flow: each line fits its schema", :bpf do
    {"stat" => ["--by-pid"], "flow" => ["--top", 4]}.each do |command, options|
      lines = probescope(command, "-p", host_target.pid, "-d", 1, "--json", *options).out.lines.map do |line|
        JSON.parse(line)
      end
      expect(lines).to fit_the_schema_of(command)
      expect(lines).not_to be_empty
    end
  end

  it "ps, status and doctor: it fits their schemas", :bpf do
    pid = host_target.pid
    {"ps" => [], "status" => ["-p", pid], "doctor" => ["-p", pid]}.each do |command, options|
      expect(probescope(command, *options, "--json").json).to fit_the_schema_of(command)
    end
  end

  it "status and doctor of the wheel: it fits their schemas", :bpf, :python do
    process = target(File.join(Support::ROOT, "examples/hotfuncs.py"))
    process.info
    %w[status doctor].each do |command|
      child = keep(Support::Child.new(Support::Python.interpreter, "-m", "probescope", command,
                                      "-p", process.pid.to_s, "--json",
                                      env: Support.plain_env.merge(Support::Python.env(loaded: false))))
      child.wait
      expect(JSON.parse(child.out)).to fit_the_schema_of(command), child.to_s
    end
  end
end
