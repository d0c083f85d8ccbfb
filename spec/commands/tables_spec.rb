# frozen_string_literal: true

require "spec_helper"
require "support/host_helpers"
require "time"

# The figures are those of spec/support/host_target.c: rows 0, 1, 2 and so on have the weights 1, 2,
# 3 and so on. Each flush counts for one second with half a second of CPU.
RSpec.describe "The commands that trace", :bpf do
  def json(command, *options, rows: 3, **keywords)
    process = host_target("--burst", 4, "--rows", rows)
    result = probescope(command, "-p", process.pid, "-d", 2, "--json", *options, **keywords)
    expect(result.status.exitstatus).to eq(0), result.err
    expect(result.json["seconds"]).to eq(4.0)
    result.json
  end

  it "has every field in its JSON object" do
    result = json("exceptions")
    expect(result.keys)
      .to eq(%w[schema command pids begin end seconds cpu_share looking_share processes rows rows_left_out
                not_covered lost others warnings])
    expect(result)
      .to include("schema" => 1, "command" => "exceptions", "cpu_share" => 0.5, "rows_left_out" => 0)
    from, to = result.values_at("begin", "end").map { |time| Time.iso8601(time) }
    expect(from).to be_within(60).of(Time.now)
    expect(to - from).to be_between(4 * 0.05, 60)
    waited = be_between(20 * 50_000_000, 60 * 1_000_000_000)
    expect(result["processes"])
      .to match([{"pid" => result["pids"][0], "waited_ns" => waited, "left_out" => nil, "taken_out" => [],
                  **result.slice("begin", "end", "seconds", "cpu_share", "looking_share")}])
    expect(result["warnings"])
      .to eq(["8 events had no row of their own: the process's memory for names is full (see (overflow))",
              "20 samples could not be taken", "28 exception details were over the limit of 10 a second"])
    expect(result["lost"].keys).to eq(%w[events rows map_full samples details unread untold])
    expect(result["lost"])
      .to include("events" => 0, "map_full" => 0, "rows" => 2 * 4, "samples" => 5 * 4, "details" => 7 * 4)
  end

  it "exceptions: sorts by the cost of backtraces, and gives their share of the CPU" do
    rows = json("exceptions")["rows"]
    expect(rows.map { |row| row["type"] }).to eq(%w[Error2 Error1 Error0])
    expect(rows[2]).to eq(
      "type" => "Error0", "file" => "/app/lib/parser.rb", "line" => 10, "function" => "Parser#step0",
      "count" => 4,
      "per_second" => 1.0, "backtrace_cost_ns" => 10_000_000 * 4, "capture_ns" => 10_000_000 * 4,
      "strings_ns" => 0, "cpu_share" => 0.02, "mean_depth" => 100.0, "app_at" => nil,
      "rescued_at" => "/app/lib/rescue.rb:77",
      "formatted_at" => nil, "rescued_at_once_share" => 1.0
    )
  end

  it "exceptions: adds the cost of strings, names the line that asked for them, and the " \
     "application's line when a gem raised" do
    process = host_target("--burst", 4, "--strings")
    rows = probescope("exceptions", "-p", process.pid, "-d", 2, "--json").json["rows"]
    expect(rows[1]).to include("type" => "Error1", "backtrace_cost_ns" => 25_000_000 * 4,
                               "capture_ns" => 20_000_000 * 4, "strings_ns" => 5_000_000 * 4,
                               "cpu_share" => 0.05, "app_at" => "/app/shop.rb:3",
                               "formatted_at" => "/app/lib/report.rb:5", "rescued_at_once_share" => 0.5)

    # An older library has no rescues. Columns without data are left out.
    out = probescope("exceptions", "-p", host_target("--rows", 1, "--old-ruby").pid, "-d", 1).out
    expect(out).to match(/^ *CPU +BACKTRACES +RAISED +PER S +DEPTH +TYPE +RAISED AT +IN +RESCUED AT$/)
  end

  it "backtraces: sums up the callers, by call and line" do
    rows = json("backtraces")["rows"]
    expect(rows.map { |row| row["call"] }).to eq(%w[backtrace caller backtrace])
    expect(rows.first).to eq("call" => "backtrace", "file" => "/app/lib/parser.rb", "line" => 12,
                             "function" => "Parser#step2", "count" => 4, "total_ns" => 12_000_000,
                             "mean_ns" => 3_000_000, "max_ns" => 3_000_000, "mean_depth" => 30.0,
                             "cpu_share" => 0.006, "type" => "Error2", "raised_at" => "/app/lib/raise.rb:7")
  end

  it "hot: gives shares of the on-CPU time, sorted by self" do
    result = json("hot", "--by", "self")
    rows = result["rows"]
    expect(result["sample_rate"]).to eq(90.0) # 45 in half a second of CPU
    expect(rows.first).to eq("function" => "Parser#step2", "file" => "/app/lib/parser.rb", "line" => 12,
                             "self_share" => 0.5, "total_share" => 0.75, "samples" => 6 * 4, "builtins" => [])
    expect(rows.map { |row| row["self_share"].round(3) }).to eq([0.5, 0.333, 0.167])
  end

  it "calls: counts, times, and sorts by self time" do
    rows = json("calls")["rows"]
    expect(rows[1]).to eq("function" => "Parser#step1", "file" => "/app/lib/parser.rb", "line" => 11,
                          "calls" => 2 * 4, "elapsed_ns" => 6000 * 4, "self_ns" => 2000 * 4,
                          "mean_ns" => 3000, "max_ns" => 2000, "raised" => 4, "counted_until" => nil)
    expect(rows.map { |row| row["function"] }).to eq(%w[Parser#step2 Parser#step1 Parser#step0])
  end

  it "alloc: counts objects and bytes, sorted by objects" do
    rows = json("alloc")["rows"]
    expect(rows.first).to eq("class" => "Error2", "file" => "/app/lib/parser.rb", "line" => 12,
                             "count" => 3 * 4, "bytes" => 120 * 4, "count_share" => 0.5)
  end

  # One process has three rows with the weights 1, 2 and 3, the other has one row.
  def pair = [host_target("--burst", 4), host_target("--burst", 4, "--rows", 1)]

  it "--by-pid: computes the shares and names the requests of each process separately" do
    both = pair
    pids = both.flat_map { |process| ["-p", process.pid] }
    out = probescope("alloc", *pids, "--by-pid", "--by-request", "-d", 2).out
    shares = both.to_h do |process|
      [process.pid, out.scan(/^ *#{process.pid} .*?([\d.]+) % /).flatten.map(&:to_f)]
    end
    expect(shares).to eq(both[0].pid => [50.0, 33.3, 16.7], both[1].pid => [100.0]), out

    twins = [host_target("--burst", 4), host_target("--burst", 4)]
    rows = probescope("slow", *twins.flat_map { |one| ["-p", one.pid] }, "-d", 2, "--threshold", "1ms",
                      "--by-pid", "--by-request", "--json", "--top", 0).json["rows"]
    told = rows.group_by { |row| row["pid"] }.transform_values do |own|
      own.map { |row| row.values_at("method", "route") }.uniq
    end
    each = [[nil, "(running)"], ["GET", "/orders/:id, [odd]"], [nil, nil]]
    expect(told).to match(twins.to_h { |one| [one.pid, match_array(each)] })
  end

  it "gc, gvl: computes shares of the wall time of the row's own processes" do
    pids = pair.flat_map { |process| ["-p", process.pid] }
    rows = probescope("gc", *pids, "-d", 2, "--json").json["rows"]
    # In each second, both processes have 1 ms of minor collections. Only the first has 2 ms of
    # major ones.
    expect(rows.to_h { |row| row.values_at("kind", "wall_share") }).to eq("minor" => 0.001, "major" => 0.001)
    rows = probescope("gvl", *pair.flat_map { |process| ["-p", process.pid] }, "-d", 2, "--json").json["rows"]
    expect(rows.map { |row| row.values_at("thread_id", "wall_share") })
      .to eq([[102, 0.003], [101, 0.002], [100, 0.001], [100, 0.001]])
  end

  # Row 0 is in no request, row 1 in an ended request, row 2 in a running job.
  it "--by-request: names the request of each row, in the same way for each process",
     full: "attaches for minutes beside other tests" do
    requests = [{"method" => "JOB", "route" => "Mail"}, {"method" => "GET", "route" => "/orders/:id"},
                {"method" => nil, "route" => nil}]
    %w[hot exceptions alloc].each do |command|
      rows = json(command, "--by-request")["rows"]
      expect(rows.map { |row| row.slice("method", "route") }).to eq(requests), command
      if command == "exceptions"
        expect(rows.map { |row| row.except("method", "route") }).to eq(json(command)["rows"])
      end
    end
    pair = [host_target("--burst", 4), host_target("--burst", 4)]
    rows = probescope("alloc", *pair.flat_map { |one| ["-p", one.pid] }, "-d", 2, "--by-request",
                      "--json").json["rows"]
    expect(rows.map { |row| [row["route"], row["count"]] })
      .to eq([["Mail", 24], ["/orders/:id", 16], [nil, 8]])
    out = probescope("exceptions", "-p", host_target.pid, "-d", 1, "--by-request").out
    expect(out.scan(%r{^(REQUEST|JOB Mail|GET /orders/:id|-) +}).flatten)
      .to eq(["REQUEST", "JOB Mail", "GET /orders/:id", "-"]), out
    out = probescope("alloc", "-p", host_target("--hostile").pid, "-d", 1, "--by-request").out
    expect(out).to include('GET /\e[31m\n,')
    expect(out).not_to include("\e")
  end

  it "slow --by-request: names the request of each call after it has ended" do
    rows = json("slow", "--by-request", "--threshold", "1ms")["rows"]
    expect(rows.map { |row| row.values_at("function", "method", "route") }.uniq).to contain_exactly(
      ["Parser#step2", nil, "(running)"], ["Parser#step1", "GET", "/orders/:id, [odd]"],
      ["Parser#step0", nil, nil]
    )
  end

  it "lines: gives shares of the on-CPU time" do
    rows = json("lines", "--by", "self")["rows"]
    expect(rows.first).to eq("function" => "Parser#step2", "file" => "/app/lib/parser.rb", "line" => 12,
                             "self_share" => 0.5, "samples" => 4)
    expect(rows.map { |row| row["self_share"].round(3) }).to eq([0.5, 0.333, 0.167])
  end

  it "gc: sums up the pauses of each kind, with a histogram" do
    rows = json("gc")["rows"]
    expect(rows.first).to eq("kind" => "major", "count" => 4, "total_ns" => 8_000_000, "mean_ns" => 2_000_000,
                             "max_ns" => 2_000_000, "live_objects" => 12_345, "freed_objects" => nil,
                             "wall_share" => 0.002,
                             "histogram" => [{"min" => 1_048_576, "max" => 2_097_152, "count" => 4}])
    out = probescope("gc", "-p", host_target("--burst", 4).pid, "-d", 3).out
    expect(out)
      .to match(/^PAUSE +COUNT\n *524 us - 1\.05 ms +4  #{"#" * 40}\n *1\.05 ms - 2\.10 ms +4  #{"#" * 40}$/)
  end

  # Failed requests take ten times as long.
  it "requests: counts the requests of each method, route and class of status, with percentiles to 3 %" do
    rows = json("requests")["rows"]
    expect(rows.map { |row| row.values_at("method", "route", "status") })
      .to eq([["POST", "/orders", "5xx"], ["GET", "/orders/:id, [odd]", "5xx"], ["GET", "/orders", "5xx"],
              ["POST", "/orders", "2xx"], ["GET", "/orders/:id, [odd]", "2xx"], ["GET", "/orders", "2xx"]])
    expect(rows[1].except("p50_ns", "p99_ns", "histogram")).to eq(
      "method" => "GET", "route" => "/orders/:id, [odd]", "status" => "5xx", "count" => 4,
      "per_second" => 1.0,
      "total_ns" => 20_000_000 * 4, "mean_ns" => 20_000_000, "max_ns" => 20_000_000, "errors" => 4,
      "statuses" => {"503" => 4}, "time_share" => 0.30303
    )
    expect(rows[1]["p99_ns"]).to be_within(600_000).of(20_000_000)
    expect(rows[1]["histogram"].map(&:values)).to eq([[1 << 24, 2 << 24, 4]])
    expect(rows[4]).to include("count" => 4, "errors" => 0, "mean_ns" => 2_000_000,
                               "p99_ns" => be_within(60_000).of(2_000_000))

    out = probescope("requests", "-p", host_target.pid, "-d", 1).out
    expect(out).to match(/^ *SHARE +REQUESTS +PER S +MEAN +P50 +P99 +MAX +STATUS +METHOD +ROUTE$/)
    expect(out).to match(
      %r{^30\.3 % +\d+ +\d+\.\d +20\.0 ms +20\.0 ms +20\.0 ms +20\.0 ms +503 +GET +/orders/:id, \[odd\]$}
    )
    expect(out).to match(/^TIME +COUNT$/)
  end

  it "requests: shows no percentiles when times were dropped, and says how to enlarge bpftrace's maps" do
    process = host_target("--rows", 30, "--burst", 2)
    result = probescope("requests", "-p", process.pid, "-d", 1, "--json",
                        env: {"PROBESCOPE_MAP_KEYS" => "10"})
    rows = result.json["rows"]
    expect(rows.map { |row| row["count"] }).to eq([28, 28, 28, 28, 2, 2, 2, 2])
    expect(rows.map { |row| row["p99_ns"] }).to include(nil)
    expect(rows.first.values_at("p50_ns", "p99_ns", "histogram")).to eq([nil, nil, []])
    expect(result.err)
      .to match(/\d+ times had no room, and their routes have no percentiles: .*PROBESCOPE_MAP_KEYS=40$/)
  end

  it "requests: names what to add when nothing reports requests, but not when there were none" do
    results = %w[--mute --rows].map do |option|
      probescope("requests", "-p", host_target(option, 0, "--rows", 0).pid, "-d", 1)
    end
    out, err = results.map { |result| [result.out, result.err] }.transpose
    expect(out).to all(include("no request ended in that time"))
    expect(err[0]).to match(/nothing in process \d+ tells of requests or jobs: `use Probescope::Rack`/)
    expect(err[1]).not_to include("nothing in process")
  end

  it "--by-request: names what to add when nothing reports requests" do
    said = %w[--mute --rows].map do |option|
      probescope("hot", "--by-request", "-p", host_target(option, 0).pid, "-d", 1).err
    end
    expect(said[0]).to match(/nothing in process \d+ tells of requests or jobs: `use Probescope::Rack`/)
    expect(said[1]).not_to include("nothing in process")
  end

  it "requests: names --workers when only the children of a server serve requests" do
    master = keep(Support::Child.new("sh", "-c", "sleep 600 & exec #{Support::HostTarget.binary} --rows 0"))
    master.await_line(/\Aready$/)
    expect(probescope("requests", "-p", master.pid, "-d", 1).out)
      .to include("in that time; --workers takes its child, too")
  end

  it "gvl: sums up the waits of each thread" do
    rows = json("gvl")["rows"]
    expect(rows.first).to eq("thread_id" => 102, "name" => nil, "waits" => 4, "total_ns" => 12_000_000,
                             "mean_ns" => 3_000_000, "max_ns" => 3_000_000, "wall_share" => 0.003)
  end

  # Returns the lines of JSON of a command that prints events as they come.
  def streamed(command, *options, processes: [host_target("--burst", 4)], **keywords)
    result = probescope(command, *processes.flat_map { |process| ["-p", process.pid] }, "-d", 2,
                        "--json", *options, **keywords)
    expect(result.status.exitstatus).to eq(0), result.err
    result.out.lines.map { |line| JSON.parse(line) }
  end

  it "stat: has a line a second with every field" do
    process = host_target("--burst", 4)
    everything = {"schema" => 1, "command" => "stat", "pids" => [process.pid], "seconds" => 1.0,
                  "cpu_share" => 0.5, "looking_share" => 0.05, "cpu_ns" => 500_000_000, "calls" => 6,
                  "raises" => 6, "backtrace_ns" => 60_000_000, "allocations" => 6, "bytes" => 240,
                  "gc_ns" => 3_000_000, "samples" => 3,
                  "lost" => {"rows" => 2, "samples" => 5, "details" => 7}}
    lines = streamed("stat", processes: [process])
    expect(lines.map { |line| line.except("begin", "end") }).to eq([everything] * 4)
    expect(lines.map { |line| Time.iso8601(line["end"]) - Time.iso8601(line["begin"]) })
      .to all(be_within(0.000002).of(1))
    expect(lines.map { |line| line["end"] }).to eq(lines.map { |line| line["end"] }.sort)
    light = probescope("stat", "-p", host_target("--burst", 4).pid, "-d", 2, "--light")
    row = "50.0 %   5.0 %           -         6    60.0 ms           -         -  3.00 ms       3     7"
    expect(light.out).to eq(<<~TEXT.gsub(/^/, "  "))
         CPU LOOKING       CALLS    RAISES BACKTRACES      ALLOCS     BYTES       GC SAMPLES  LOST
      #{([row] * 4).join("\n")}
    TEXT
  end

  it "stat: shows - and not 0 for a figure that a process does not serve" do
    process = host_target("--burst", 4, "--without", "object__stats")
    result = probescope("stat", "-p", process.pid, "-d", 2, "--json")
    expect(result.status.exitstatus).to eq(0), result.err
    lines = result.out.lines.map { |line| JSON.parse(line) }
    expect(lines.map { |line| line.values_at("calls", "allocations", "bytes", "gc_ns") })
      .to eq([[6, nil, nil, 3_000_000]] * 4)
    expect(result.err)
      .to include("process #{process.pid} does not serve object__stats: not with this runtime")
    table = probescope("stat", "-p", host_target("--burst", 1, "--without", "gc__done").pid, "-d", 1).out
    expect(table.lines[1].split)
      .to eq(["50.0", "%", "5.0", "%", "6", "6", "60.0", "ms", "6", "240", "B", "-", "3", "7"])
    none = probescope("stat", "-p", host_target("--state", 3).pid, "-d", 1)
    expect([none.status.exitstatus, none.out]).to eq([1, ""])
  end

  it "exceptions: leaves the cost of strings unknown if the library does not measure it" do
    process = host_target("--burst", 2, "--without", "backtrace__done")
    rows = probescope("exceptions", "-p", process.pid, "-d", 1, "--json").json["rows"]
    expect(rows.map { |row| row.values_at("strings_ns", "capture_ns") }).to all(match([nil, be_positive]))
    expect(rows.map { |row| row["backtrace_cost_ns"] }).to eq(rows.map { |row| row["capture_ns"] })
  end

  it "stat: adds up several processes, or has a line for each with --by-pid" do
    pair = -> { [host_target("--burst", 4), host_target("--burst", 4, "--rows", 1)] }
    lines = streamed("stat", processes: pair.call)
    expect(lines.sum { |line| line["calls"] }).to eq((6 + 1) * 4)
    expect(lines.sum { |line| line["cpu_ns"] }).to eq(4_000_000_000)
    one, two = pair.call
    lines = streamed("stat", "--by-pid", processes: [one, two])
    expect(lines.map { |line| [line["pids"], line["calls"]] }.tally)
      .to eq([[one.pid], 6] => 4, [[two.pid], 1] => 4)
  end

  it "flow: is the whole tree of the calls, or a part of it" do
    process = host_target("--burst", 4)
    intervals, lines = streamed("flow", processes: [process]).partition { |line| line["event"] == "interval" }
    expect(lines.size).to eq(5 * 4)
    expect(intervals.map { |line| line.values_at("seconds", "cpu_share", "looking_share") })
      .to eq([[1.0, 0.5, 0.05]] * 4)
    expect(lines.last(5).map { |line| line.values_at("event", "depth", "function", "outcome") })
      .to eq([["enter", 0, "Parser#step0", nil], ["enter", 1, "Parser#step1", nil],
              ["call", 2, "Parser#step2", "returned"], ["leave", 1, "Parser#step1", "raised"],
              ["leave", 0, "Parser#step0", "returned"]])
    expect(lines.last).to include("pid" => process.pid, "thread_id" => process.pid, "context_id" => 1,
                                  "line" => 10, "file" => "/app/lib/parser.rb", "elapsed_ns" => 2000,
                                  "self_ns" => 1000)
    lines = streamed("flow", "--function", "Parser#step1", "--thread", process.pid, processes: [process])
    expect(lines.map { |line| line["function"] }.tally.keys).to eq(["Parser#step1", "Parser#step2", nil])
  end

  it "flow: shows one thread of several processes; ends after --top lines; prints no control characters" do
    pids = Array.new(2) { host_target("--hostile").pid }
    result = probescope("flow", "-p", pids[0], "-p", pids[1], "--top", 7)
    expect(result.status.exitstatus).to eq(0), result.err
    expect(result.out)
      .to match(/\A[[:print:]\n]*\z/).and include('odd,name\t\e[31m').and match(%r{/app/lib/parser\.rb:1\d$})
    expect(result.out.lines.size).to eq(2 + 7 + 2)
    expect(result.out.lines.last).to match(/^from .*(until the last line|; the last lines came after that)$/)
    expect(result.out).to match(/\Aflow of process (#{pids.join("|")}), thread \1$/)
  end

  it "flow: names the functions that were called if the requested one was not" do
    process = host_target
    result = probescope("flow", "-p", process.pid, "-d", 1, "--function", "Parser.step2")
    nearest = "the nearest of those that were: Parser#step2, Parser#step0"
    expect(result.err).to match(/"Parser\.step2" was not called in that time; #{nearest}/)
    expect([result.status.exitstatus, result.out]).to eq([1, ""])
    result = probescope("flow", "-p", process.pid, "-d", 1, "--thread", 1)
    expect(result.err).to include("thread 1 called nothing in that time; those that did: #{process.pid}\n")
  end

  # In each of four flushes step2 calls step1 calls step0, which take 12, 8 and 4 ms.
  it "slow: gives each call, below its caller" do
    rows = json("slow", "--threshold", "5ms")["rows"]
    expect(rows.map { |row| row["function"] }).to eq(%w[Parser#step2 Parser#step1] * 4)
    expect(rows[1]).to match(
      "function" => "Parser#step1", "file" => "/app/lib/parser.rb", "line" => 11, "elapsed_ns" => 8_000_000,
      "self_ns" => 4_000_000,
      "at" => /\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z\z/, "outcome" => "returned", "thread_id" => 101,
      "traceparent" => "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    )
    expect(rows[0]).to include("outcome" => "raised", "thread_id" => 102, "traceparent" => nil)
    expect(rows.each_slice(2).map { |outer, inner| Time.iso8601(outer["at"]) - Time.iso8601(inner["at"]) })
      .to all(be_between(0, 1))

    process = host_target("--rows", 30)
    out = probescope("slow", "-p", process.pid, "-d", 1, "--threshold", "110ms").out
    heading, outer, inner = out.lines[3, 3].map { |line| line.strip.split(/ {2,}/) }
    expect(heading).to eq(["ELAPSED", "SELF", "ENDED", "THREAD", "FUNCTION", "DEFINED AT", "TRACE"])
    expect(outer).to match(["120 ms", "4.00 ms", /\A[\d:]{8}\.\d{3}\z/, "129", "Parser#step29", "(raised)",
                            "/app/lib/parser.rb:39", "0af7651916cd43dd8448eb211c80319c"])
    # step28 only called step27, so the table leaves it out.
    expect(inner).to match(["112 ms", "4.00 ms", outer[2], "127", "Parser#step27", "/app/lib/parser.rb:37",
                            "0af7651916cd43dd8448eb211c80319c"])
    expect(out).to match(/\d  Parser#step29 .*\n.*\d    Parser#step27 /)
      .and match(/^left out: \d+ calls that only made the next one/)
    expect(out).not_to match(/Parser#step(28|26) /)
  end

  it "slow: --function takes a pattern of names; a call is below its nearest caller that matches, too" do
    process = host_target("--rows", 3)
    run = lambda do |glob, *more|
      probescope("slow", "-p", process.pid, "-d", 1, "--threshold", "1ms", "--function", glob, *more)
    end
    expect(run.call("*#step{0,2}").out).to match(/\d  Parser#step2 .*\n.*\d    Parser#step0 /)
    wrong = run.call("parser#stp1", "--json")
    expect(wrong.status.exitstatus).to eq(1)
    expect(wrong.err).to include("no function like parser#stp1 took 1.00 ms; " \
                                 "the nearest of those that did: Parser#step1, Parser#step")
  end

  it "slow: tells hostile names as they are in JSON, and counts what found bpftrace's maps full" do
    rows = probescope("slow", "-p", host_target("--hostile", "--rows", 1).pid, "-d", 1, "--threshold", "1ms",
                      "--json").json["rows"]
    expect(rows.first).to include("function" => /\ABad"\n\e\[31m,\\ \u{fffd}é,Namex{20,}\z/,
                                  "traceparent" => "\e[31m\n",
                                  "file" => "/tmp/a,b\"\n\e]0;title\a\u{fffd}.rb")
    table =
      probescope("slow", "-p", host_target("--hostile", "--rows", 1).pid, "-d", 1, "--threshold", "1ms").out
    expect(table).to match(/\A[[:print:]\n]*\z/)

    full = probescope("slow", "-p", host_target("--rows", 30, "--burst", 4).pid, "-d", 1,
                      "--threshold", "1ms", "--json", env: {"PROBESCOPE_MAP_KEYS" => "10"})
    expect(full.json["rows"].size).to eq(10)
    dropped = full.json["lost"]["map_full"]
    expect([(dropped + 10) % 30, dropped]).to match([0, be >= (30 * 4) - 10])
    expect(full.err).to include("#{dropped} rows were dropped: bpftrace's maps are full")
  end

  it "JSON has every row, whatever --top; both JSON and table count the rows that --min hides" do
    whole = json("calls", "--top", 1, rows: 30)
    expect(whole["rows"].size).to eq(30)
    expect(whole["warnings"]).to include("--top is for tables: JSON has every row")
    expect(json("calls", rows: 30)["rows"].size).to eq(30)
    some = json("hot", "--by", "self", "--min", 40)
    expect(some["rows"].map { |row| row["function"] }).to eq(%w[Parser#step2 Parser#step1])
    expect(some["rows_left_out"]).to eq(1)
    table = probescope("calls", "-p", host_target.pid, "-d", 1, "--top", 1, "--min", 20).out
    expect(table).to include("\n1 more rows; --top 0 shows all; 1 rows below --min 20\n")
    none = probescope("calls", "-p", host_target.pid, "-d", 1, "--min", 90).out
    expect(none).to include("\n  every row (3) is below --min\n")

    table = probescope("alloc", "-p", host_target.pid, "-d", 1, "--top", 2).out
    expect(table).to match(/\ASHARE|^SHARE +COUNT +BYTES +CLASS +ALLOCATED AT\n50\.0 %/)
    expect(table).to end_with("\n1 more rows; --top 0 shows all\n")
  end

  it "--all raises the semaphore of functions__all while it counts" do
    process = host_target
    command = probescope_start("calls", "--all", "-p", process.pid, "-d", 600)
    enabled = -> { info_of(process).probes.select { |_, probe| probe[:enabled].positive? }.keys.sort }
    await("functions__all") { enabled.call == %w[function__stats functions__all stats__done] }
    await_flushes(process, 4)
    command.stop(:INT)
    expect(command.out).to include("Parser#step2")
    await("its end") { enabled.call.empty? }
  end

  it "prints hostile names without control characters" do
    process = host_target("--hostile", "--rows", 1)
    out = probescope("exceptions", "-p", process.pid, "-d", 1).out
    expect(out).to match(/\A[[:print:]\n]*\z/)
    expect(out).to include('Bad"\n\e[31m,\ ').and include('/tmp/a,b"\n\e]0;title\x07')
  end

  %w[exceptions backtraces hot calls alloc lines].each do |command|
    it "#{command}: gives hostile names unchanged in JSON, cut to 63 bytes" do
      rows =
        probescope(command, "-p", host_target("--hostile", "--rows", 1).pid, "-d", 1, "--json").json["rows"]
      rows.reject! { |row| row["outside"] } # by own code, hot and lines have such a row
      expect(rows.size).to eq(1)
      expect(rows.first.values_at("type", "class", "function").compact.first)
        .to match(/\ABad"\n\e\[31m,\\ \u{fffd}é,Namex{20,}\z/)
      expect(rows.first["file"]).to eq("/tmp/a,b\"\n\e]0;title\a\u{fffd}.rb")
    end

    it "#{command}: counts the rows that bpftrace's maps had no room for, and says how to enlarge them" do
      process = host_target("--rows", 30, "--burst", 4)
      by_self = %w[--by self] if %w[hot lines].include?(command)
      result = probescope(command, "-p", process.pid, "-d", 1, "--json", *by_self,
                          env: {"PROBESCOPE_MAP_KEYS" => "10"})
      expect(result.json["rows"].size).to eq(10)
      expect(result.json["lost"]["map_full"]).to eq(20 * 4)
      expect(result.err)
        .to match(/80 rows were dropped: bpftrace's maps are full; give them room: PROBESCOPE_MAP_KEYS=/)
    end
  end

  it "has room for thousands of rows" do
    result = json("alloc", rows: 5000)
    expect(result["rows"].size).to eq(5000)
    expect(result["lost"]["map_full"]).to eq(0)
  end

  it "writes no progress to stderr if that is not a terminal" do
    result = probescope("hot", "-p", host_target("--burst", 4).pid, "-d", 1)
    expect(result.err.lines).to all(match(/\Aprobescope: \d+ (events|samples|exception details) /))
  end
end
