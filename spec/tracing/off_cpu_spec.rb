# frozen_string_literal: true

require "spec_helper"
require "probescope/commands/offcpu"

# tests/test_offcpu.py has the same for the wheel.
RSpec.describe Probescope::Tracing::OffCpu do
  second = 1_000_000_000
  # On x86-64: futex, ppoll, read, clock_nanosleep.
  futex, ppoll, read, nanosleep = [202, 271, 0, 230].map { |number| (number + 1) << 17 }
  no_file, unknown, deep, other = 65_534, 65_535, 1 << 16, 60_005 << 17

  before do
    skip "its numbers of system calls are those of x86-64" unless Etc.uname[:machine] == "x86_64"
  end

  # One process, whose interval is from 10 s to 20 s of bpftrace's clock.
  define_method(:report) do |maps, runtime: "python", by_request: false, **quiet|
    all = {"wall_ns" => {"7" => 10 * second}, "cpu_ns" => {"7" => 8 * second}, "followed" => {"7" => 2},
           "began" => {"7" => 10 * second},
           "ended" => {"7" => 20 * second}, "until" => {"7" => 21 * second},
           "row" => {"7, 0" => ["", "", 0, 7], "7, 64" => ["f", "a.py", 1, 7],
                     "7, 128" => ["g", "a.py", 5, 7]}}
    output = Struct.new(:maps, :lost_events).new({**all, **maps}, 0)
    ended = {by_pid: true, targets: [{pid: 7, runtime: runtime, version: "3.1.2", **quiet}]}
    program = Probescope::Tracing::Program.path("offcpu#{"_by_request" if by_request}.bt")
    result = Probescope::Tracing::Result.new(output, ended, program)
    definition = Probescope::Tracing::Definitions::ALL.fetch("offcpu")
    Probescope::Commands::Offcpu::Report.new(result, definition, by_request: by_request)
  end

  it "counts what is under way at the end with its part, and names who woke" do
    lock, timer = futex + unknown, nanosleep + unknown
    # Thread 8 waited for 3 s, and computes since 18 s. 9 waits since 5 s, and is ready since 19 s. 10
    # was made at 15 s, and sleeps since 16 s.
    told = report({"blocked_ns" => {"7, 64, #{lock}" => 3 * second}, "times" => {"7, 64, #{lock}" => 2},
                   "longest_ns" => {"7, 64, #{lock}" => 2 * second},
                   "woken_ns" => {"7, 64, #{lock}, 128" => 2 * second}, "on_cpu_ns" => {"7" => 6 * second},
                   "at" => {"7, 8" => 18 * second, "7, 9" => 5 * second, "7, 10" => 16 * second},
                   "what" => {"7, 8" => 1, "7, 9" => lock, "7, 10" => timer},
                   "site" => {"7, 8" => 0, "7, 9" => 64, "7, 10" => 0},
                   "woken" => {"7, 8" => 1, "7, 9" => 19 * second, "7, 10" => 1},
                   "since" => {"7, 10" => 15 * second}})
    expect(told.more).to include(threads: 3, thread_ns: 25 * second, on_cpu_ns: 8 * second, queued_ns: second,
                                 blocked_ns: {"lock" => 12 * second, "timer" => 4 * second}, left_over_ns: 0)
    first, last = told.rows
    expect(first).to include(function: "f", blocked_ns: 12 * second, queued_ns: second, times: 3,
                             longest_ns: 15 * second)
    expect(first[:woken_by])
      .to eq([{function: "g", file: "a.py", line: 5, blocked_ns: 2 * second}])
    cells = Probescope::Tracing::Cells
    expect(cells.largest_waker(first, :woken_by)).to eq("g at a.py:5 16.7 %")
    expect(cells.largest_reason(first, :reasons)).to eq("lock (futex)")
    expect(last).to include(function: nil, outside: true, blocked_ns: 4 * second)
    expect(told.incomplete).to be_nil
    expect(told.above).to eq("3 threads: 8.00 s on the CPU + 1.00 s queued + 16.0 s blocked " \
                             "(lock 12.0 s, timer 4.00 s) = 25.0 s of wall time; 0 ns (0.0 %) left over")
  end

  it "has rows for each request, with what is under way and who woke, and the same sums" do
    lock, get, lost = futex + unknown, 1 << 48, (1 << 48) + 1
    waits = {"7, 64, #{lock}, 0" => second, "7, 64, #{lock}, #{get}" => 2 * second,
             "7, 64, #{lock}, #{lost}" => 4 * second}
    # Thread 8 waits since 15 s, and is ready since 19 s. 9 has no event.
    told = report({"blocked_ns" => waits, "times" => waits.transform_values { 1 },
                   "longest_ns" => waits, "request" => {"7, #{get}" => [get, "GET /a"]},
                   "woken_ns" => {"7, 64, #{lock}, #{get}, 128" => second},
                   "at" => {"7, 8" => 15 * second}, "what" => {"7, 8" => lock}, "site" => {"7, 8" => 64},
                   "works_for" => {"7, 8" => get}, "woken" => {"7, 8" => 19 * second},
                   "thread_ns" => {"7" => 2 * second}, "threads" => {"7" => 1}},
                  by_request: true, threads: [[9, 0, [202, 1 << 40, 128]]], more_threads: 0, files: [])
    rows = told.rows.map { |row| row.values_at(:method, :route, :function, :blocked_ns, :queued_ns, :times) }
    expect(rows).to eq([[nil, nil, nil, 10 * second, 0, 1], ["GET", "/a", "f", 6 * second, second, 2],
                        [nil, "(unknown)", "f", 4 * second, 0, 1], [nil, nil, "f", second, 0, 1]])
    expect(told.rows.map { |row| row[:woken_by].size }).to eq([0, 1, 0, 0])
    expect(told.more).to include(blocked_ns: {"lock" => 21 * second}, queued_ns: second, left_over_ns: 0)
  end

  it "takes threads without an event for those that slept or ran all the time, and says what is left" do
    told = report({"at" => {"7, 8" => 20 * second}, "what" => {"7, 8" => 1}},
                  threads: [[8, 0, nil], [9, 0, [202, 1 << 40, 128]], [10, 10 * second, nil],
                            [11, second, nil]],
                  more_threads: 5, files: [])
    expect(told.more).to include(threads: 4, thread_ns: 40 * second, on_cpu_ns: 10 * second,
                                 blocked_ns: {"lock" => 10 * second}, left_over_ns: 20 * second)
    expect(told.incomplete)
      .to eq("the times of the threads do not add up: 20.0 s (50.0 %) left over of 40.0 s")
    expect(told.not_covered.last).to include("up to 5 threads that slept")
  end

  it "says if more time is on the CPU than the process has used" do
    maps = {"on_cpu_ns" => {"7" => 9 * second}, "thread_ns" => {"7" => 9 * second}, "threads" => {"7" => 1}}
    expect(report(maps).incomplete)
      .to eq("of the time on the CPU, 1.00 s were off it: the process's CPU time is less")
    expect(report({**maps, "cpu_ns" => {"7" => 9 * second}}).incomplete).to be_nil
    # Interrupted: the figures of threads cover more than the process's interval.
    expect(report({**maps, "followed" => {"7" => 1}}).incomplete).to be_nil
  end

  define_method(:reason) do |what, runtime: "python", **files|
    files = files.map { |fd, kind| [fd.to_s.delete("_").to_i, kind] }
    told = report({"times" => {"7, 64, #{what}" => 1}}, runtime: runtime, threads: [], more_threads: 0,
                                                        files: files)
    told.rows.first[:reasons].first[:reason]
  end

  it "finds reasons by the call, the file and the state" do
    expect(reason(futex + unknown)).to eq("lock")
    expect(reason(futex + unknown, runtime: "ruby")).to eq("timer_lock_or_child")
    expect(reason(ppoll + no_file)).to eq("timer")
    expect(reason(ppoll + no_file, runtime: "ruby")).to eq("timer_lock_or_child")
    expect(reason(ppoll + 7, runtime: "ruby", _7: "event")).to eq("timer_lock_or_child")
    expect(reason(ppoll + 7, runtime: "ruby", _7: "socket")).to eq("socket")
    expect(reason(ppoll + unknown)).to eq("ready")
    two = ppoll + 7 + ((8 + 1) << 40)
    expect(reason(two, runtime: "ruby", _7: "event", _8: "event")).to eq("timer_lock_or_child")
    expect(reason(two, runtime: "ruby", _7: "socket", _8: "event")).to eq("socket")
    expect(reason(two, runtime: "ruby", _7: "event", _8: "socket")).to eq("ready")
    expect(reason(two, _7: "socket", _8: "event")).to eq("ready")
    expect(reason(futex + 7 + ((8 + 1) << 40))).to eq("lock")
    expect(reason(read + 7, _7: "pipe")).to eq("pipe")
    expect(reason(read + 7)).to eq("other")
    expect(reason(read + deep + unknown)).to eq("file")
    expect(reason(nanosleep + 1)).to eq("timer")
    expect(reason((60_001 << 17) + deep + unknown)).to eq("page_fault")
    expect(reason(other + unknown)).to eq("other")
  end

  it "says that Ruby waits for several things in one call, and where CPython's GIL is not known" do
    told = report({"times" => {"7, 64, #{futex + unknown}" => 1}}, runtime: "ruby")
    expect(told.not_covered)
      .to include("timer, lock or child: Ruby 3.1.2 waits for all of them, and for its VM lock, in one call")
    expect(report({}).not_covered.join).to include("where it is in this CPython is not known")
    expect(report({"gil" => {"7" => 4096}}).not_covered.join).not_to include("CPython")
  end

  it "reads /proc of this process" do
    states = Probescope::Tracing::ThreadStates
    before = states.of(Process.pid)
    reader, writer = IO.pipe
    told = states.between(before, states.of(Process.pid))
    expect(told[:threads].map(&:first)).to include(Process.pid)
    expect(told[:files].to_h[reader.fileno]).to eq("pipe")
    expect(states.of(2**22 + 1)).to eq(states::State.new({}, 0, {}))
  ensure
    [reader, writer].each(&:close)
  end
end
