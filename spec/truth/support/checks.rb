# frozen_string_literal: true

module Truth
  # A figure with its truth. said: the command's number, or nil. truth: the best estimate, or nil.
  # within: the Range that contains the truth. near: for a count, the Range if the interval's ends
  # are exactly those of the command.
  # points: for a share, how far outside the Range is still right.
  Figure = Struct.new(:what, :said, :truth, :within, :near, :share, :points, keyword_init: true) do
    def self.share(what, said, truth, within = truth..truth, points: POINTS)
      new(what: what, said: said.to_f, truth: truth, within: within, share: true, points: points)
    end

    def right? = share ? error <= points : within.cover?(said || -1)

    # How far the figure is outside the Range: shares in points, counts in percent.
    def error
      value = said || -1
      nearest = value.clamp(within.begin, within.end)
      share ? (value - nearest).abs * 100 : (value - nearest).abs.fdiv([nearest, 1].max) * 100
    end

    # How far a count is from the best estimate, in percent of it; negative if it is too low. Events
    # at the begin and the end of the interval make the estimate uncertain. Returns nil for shares,
    # and for counts below 100, of which one event is more than 1 %.
    def bias = share || truth.to_f < 100 ? nil : ((said || 0) / truth.to_f - 1) * 100

    def to_s
      return "#{what}: said #{said.inspect}, in truth #{within}" unless share

      format("%s: said %.3f, in truth %.3f", what, said, truth)
    end
  end
  # Limit for a share.
  POINTS = 5

  # Compares a command's answer about one process with that process's ledger. Each command has its
  # own subclass. The commands trace several processes, with --by-pid.
  class Check
    # The interval of live events ends when bpftrace reads stats__done. On a machine busy with other
    # programs, it reads stats__done at most this long after its time.
    SLACK = 50_000_000
    # The usual delay.
    USUAL_SLACK = 10_000_000

    # Returns a check for each process that counts.
    def self.of(language, answer, ledgers)
      processes(answer).filter_map do |pid, interval, rows|
        ledger = ledgers[pid]
        new(language, answer, pid, interval, rows, ledger) if ledger&.names("calls:")&.any?
      end
    end

    # Returns [[pid, [begin, end], rows]], with times in ns of CLOCK_MONOTONIC.
    def self.processes(answer)
      answer.fetch("processes").filter_map do |process|
        next if process["left_out"]

        pid = process.fetch("pid")
        interval = process.values_at("begin", "end").map { |time| Truth.monotonic_ns(time) }
        [pid, interval, answer["rows"].select { |row| row.fetch("pid", pid) == pid }]
      end
    end

    # Returns the losses that the command reports, and the processes that it leaves out.
    def self.lost(answer)
      answer["lost"]
        .merge("processes left out" => answer.fetch("processes", []).count { |one| one["left_out"] })
    end

    # answer: the command's JSON. interval: [begin, end] in ns of CLOCK_MONOTONIC. rows: those of
    # the process.
    def initialize(language, answer, pid, interval, rows, ledger)
      raise "#{pid} ended before the interval did" unless ledger.reaches?(interval.last)

      @language = language
      @answer = answer
      @pid = pid
      @from, @to = interval
      @rows = rows
      @ledger = ledger
    end

    # Number of samples in the figures, for a command that takes samples.
    def samples = nil

    private

    # beside: tolerance of the count. begun: see Ledger#growth.
    def count(what, said, counter, beside: 0, begun: counter)
      within, near = [self.class::SLACK, self.class::USUAL_SLACK].map do |slack|
        range = growth(counter, slack, begun)
        [range.begin - beside, 0].max..(range.end + beside)
      end
      Figure.new(what: what, said: said, truth: estimate(counter, begun), within: within, near: near)
    end

    # Counted ns as a part of the interval. inner: a counter that grows by less. The truth is
    # between the two counters.
    def part(what, said, counter, inner = counter, points: POINTS)
      most = growth(counter, self.class::SLACK).end
      least = [growth(inner, self.class::SLACK).begin, most].min # two clocks
      Figure.share(what, said.fdiv(wall), estimate(counter) / wall, least.fdiv(wall)..most.fdiv(wall),
                   points: points)
    end

    # The time in a function is less than the time around its call, which includes a hook and the
    # VM, and more than the time in its body. On a busy machine the thread waits for a CPU in both
    # places.
    def time_in(what, said, name)
      inner = "inner:#{name}"
      part(what, said, "wall:#{name}", counted?(inner) ? inner : "wall:#{name}")
    end

    def process = @answer["processes"].find { |one| one["pid"] == @pid }
    def estimate(counter, begun = counter) = @ledger.estimate(counter, @from, @to, begun: begun)
    def counted?(counter) = @ledger.names("").include?(counter)

    # Fails if the program does not have this counter.
    def growth(counter, slack, begun = counter)
      counted?(counter) ? @ledger.growth(counter, @from, @to, slack, begun: begun) : raise(KeyError, counter)
    end

    def wall = @to - @from

    def at(mark)
      @rows.select do |row|
        row["line"] == line_of(mark) && row["file"].to_s.end_with?(@language.file("work"))
      end
    end

    def line_of(mark)
      @language.lines("work").index { |line| line.match?(/# #{mark}$/) } + 1
    end

    def sum(rows, key = "count") = rows.sum { |row| row[key] || 0 }
  end

  # All rows of a flush belong to one moment, which the process reports. If the clock is set while
  # the command runs, that moment moves.
  class RowsCheck < Check
    SLACK = USUAL_SLACK = 1_000_000
  end

  class CallsCheck < RowsCheck
    def figures
      @ledger.names("calls:").flat_map do |name|
        row = @rows.find { |one| one["function"] == @language.function(name) } || {}
        [count("calls of #{name}", row["calls"] || 0, "calls:#{name}"), *elapsed(name, row)]
      end
    end

    private

    # Only for calls that are long, compared with the time of the program's own clocks.
    def elapsed(name, row)
      truth = estimate("wall:#{name}")
      return [] if truth < 0.05 * wall || !row["calls"]

      [time_in("elapsed of #{name}, of the interval", row["elapsed_ns"], name)]
    end
  end

  class ExceptionsCheck < RowsCheck
    def figures
      raised = @rows.select { |row| row["type"].to_s.end_with?("TruthError") }
      [count("raised", sum(raised.select { |row| row["line"] == line_of("raised") }), "raised"),
       count("raised anywhere", sum(raised), "raised")]
    end
  end

  class AllocCheck < RowsCheck
    def figures
      rows = at("made")
      if rows.any? { |row| row["class"].to_s.end_with?("Thing") }
        rows = rows.select { |row| row["class"].to_s.end_with?("Thing") }
      end
      [count("objects", rows.map { |row| row["count"] }.max || 0, "things")]
    end
  end

  class BacktracesCheck < Check
    def figures = [count("texts", sum(at("told")), "texts")]
  end

  # The command has no call that began before its hooks were in. A program with many such calls also
  # counts the begins.
  class SlowCheck < Check
    def figures
      %w[nap doze].select { |name| counted?("calls:#{name}") }.map do |name|
        found = @rows.count { |row| row["function"] == @language.function(name) }
        begun = counted?("begun:#{name}") ? "begun:#{name}" : "calls:#{name}"
        count("calls of #{name} that took 10 ms", found, "calls:#{name}", begun: begun)
      end
    end
  end

  class RequestsCheck < Check
    def figures
      @ledger.names("requests:").map do |route|
        count("requests of #{route}", sum(@rows.select { |row| row["route"] == route }), "requests:#{route}")
      end
    end
  end

  # A collection ends after the whole sweep, perhaps later than the program counts it.
  class GcCheck < Check
    def figures
      [count("collections", sum(@rows), "process:collections", beside: 1),
       (time if counted?("process:gc"))].compact
    end

    private

    # The program's callbacks enclose the library's, and may lose their CPU there. A collection
    # takes at least its CPU time.
    def time
      part("time of the garbage collector, of the interval", sum(@rows, "total_ns"), "process:gc",
           "process:gc_cpu")
    end
  end

  # One line a second for each process.
  class StatCheck < RowsCheck
    def self.processes(answer)
      answer.group_by { |line| line["pids"].first }.map do |pid, lines|
        [pid, [lines.first["begin"], lines.last["end"]].map { |time| Truth.monotonic_ns(time) }, lines]
      end
    end

    def self.lost(answer)
      answer.map { |line| line["lost"] }.reduce { |all, one| all.merge(one) { |_, a, b| a + b } }
    end

    def figures
      counts = {"calls" => "work", "raises" => "raised_anywhere", "allocations" => "process:objects"}
      counts = counts.select { |_, counter| counted?(counter) }
      # The VM's count minus the objects that the library leaves out. The objects of a note belong
      # to the next note. The library makes one object for each fiber.
      beside = {"allocations" => 10 + @ledger.total("fibers")}
      [*counts.map { |key, counter| count(key, total(key), counter, beside: beside.fetch(key, 0)) },
       part("CPU", total("cpu_ns"), "process:cpu")]
    end

    private

    # Returns nil if a line has no figure: the process does not serve it.
    def total(key) = @rows.map { |row| row[key] }.then { |all| all.sum if all.all? }
  end

  # Shares of the process's CPU time. With fewer than 3,000 samples, an error of 5 points may be
  # chance.
  class HotCheck < Check
    def samples = process["seconds"] * process["cpu_share"] * @answer["sample_rate"]

    COLLECTIONS = "(garbage collection)"

    # Timed functions call nothing that has a row, except collections.
    def figures
      figures = @ledger.names("cpu:").map do |name|
        collected = apart? && counted?("gc:#{name}") ? estimate("gc:#{name}") : 0
        Figure.share("self share of #{name}", said(@language.function(name), "self_share"),
                     (estimate("cpu:#{name}") - collected) / cpu)
      end
      figures += totals
      return figures unless apart?

      figures << Figure.share("share of collections", said(COLLECTIONS, "self_share"),
                              estimate("process:gc_cpu") / cpu)
    end

    private

    def cpu = estimate("cpu")
    def said(function, share) = sum(@rows.select { |one| one["function"] == function }, share)

    def apart? = @language.collections_apart?

    def totals
      @ledger.names("cpu:").map do |name|
        Figure.share("total share of #{name}", said(@language.function(name), "total_share"),
                     estimate("cpu:#{name}") / cpu)
      end
    end
  end

  # The lines of a function together: the program does not measure each line.
  class LinesCheck < HotCheck
    private

    # Lines have no totals.
    def totals = []
  end

  # A probe of one function. answer: [{"pid", "from", "to", "count", "ns"}, ...], from
  # Truth.latency. Each call has its time, so the interval is exact.
  class LatencyCheck < Check
    SLACK = USUAL_SLACK = 1_000_000

    def self.processes(answer) = answer.map { |one| [one["pid"], one.values_at("from", "to"), one] }
    def self.lost(_answer) = nil

    def figures
      name = @rows["function"]
      [count("calls of #{name}", @rows["count"], "calls:#{name}"),
       time_in("time in #{name}, of the interval", @rows["ns"], name)]
    end
  end

  # Live calls up to the end of the last second that the command reports as over. Each call has its
  # time, so the interval is exact.
  class FlowCheck < Check
    SLACK = USUAL_SLACK = 1_000_000

    def self.processes(answer)
      answer.map do |one|
        lines = one["lines"]
        whole = lines.each_index.select do |i|
          lines[i].values_at("event", "end").then { |event, to| event == "interval" && to }
        end
        interval = [lines[whole.first]["begin"], lines[whole.last]["end"]].map do |time|
          Truth.monotonic_ns(time)
        end
        [one["pid"], interval, lines.first(whole.last)]
      end
    end

    def self.lost(answer)
      rows = answer.flat_map { |one| one["lines"] }.select { |row| row["event"] == "lost" }
      {"events" => rows.sum { |row| row["count"] }}
    end

    # Calls that began before the interval are not shown. Calls that end after it have no time yet.
    def figures
      naps = @rows.select { |row| row["function"] == @language.function("nap") }
      begun = naps.reject { |row| row["event"] == "leave" }
      [count("calls of nap that began", begun.size, "calls:nap", beside: 1),
       time_in("time in nap, of the interval", sum(naps, "elapsed_ns"), "nap")]
    end
  end

  # Where the program of the kernel's events counts, and in the interval that it states.
  class KernelCheck < Check
    # Both ends of the interval are events of the program itself. The library may lose its CPU
    # between them and the program's clocks.
    SLACK = 20_000_000
    # For shares of the interval: 2 % of a function that is off the CPU for the whole interval, in
    # one thread.
    POINTS = 2

    # There are always events of threads that made no traced call: those of the library's own thread.
    def self.lost(answer) = super.except("untold")

    private

    def of(function) = @rows.select { |row| row["function"] == @language.function(function) }
    def points(truth) = POINTS * [truth, 1].max
  end

  # Time off the CPU of functions that are off it for at least 5 % of the interval.
  class OffcpuCheck < KernelCheck
    def figures
      figures = @ledger.names("inner_off:").filter_map { |name| off(name) }
      @answer["processes"].size > 1 ? figures : [*figures, *of_all_threads]
    end

    private

    def off(name)
      truth = estimate("off:#{name}") / wall
      return if truth < 0.05

      said = of(name).sum { |row| row["blocked_ns"] + row["queued_ns"] }
      part("time of #{name} off the CPU, of the interval", said, "off:#{name}", "inner_off:#{name}",
           points: points(truth)).tap { |figure| figure.within = beside(figure.within) }
    end

    # Where the program missed a switch, and the command warns of it, time may be left over.
    def beside(range)
      unseen = @answer["warnings"].any?(/not seen/) ? [@answer["left_over_ns"], 0].max : 0
      (range.begin - unseen.fdiv(wall))..range.end
    end

    # The command has one sum for all processes.
    def of_all_threads
      left = @answer["left_over_ns"].fdiv(@answer["thread_ns"])
      [(part("CPU", @answer["on_cpu_ns"], "process:cpu", points: POINTS) if counted?("process:cpu")),
       Figure.share("time of all threads that is left over", left, 0.0, 0.0..0.0, points: POINTS)].compact
    end
  end

  # Waits of a function that only sleeps. Where the kernel reports waits, Ruby's waits for the VM lock
  # have no kind of their own: a sleep may be followed by one.
  class WaitsCheck < KernelCheck
    # In ns. A sleep takes at least this long, and at most the time around the call.
    NAP = 12_000_000

    def figures
      rows = of("nap")
      rows = rows.select { |row| row["what"].match?(/\A(sleep|Kernel#sleep)\z/) } unless merged?
      [waits(sum(rows, "waits")), time(sum(rows, "blocked_ns"))]
    end

    private

    def merged? = @answer["known_by"] == "kernel" && !@language.python?

    def waits(said)
      figure = count("waits of nap", said, "calls:nap")
      return figure unless merged?

      most = ->(range) { range.begin..(range.end * 2) }
      figure.dup.tap { |one| one.within, one.near = most[one.within], most[one.near] }
    end

    def time(said)
      truth = estimate("wall:nap") / wall
      least = growth("calls:nap", SLACK).begin * NAP
      most = growth("wall:nap", SLACK).end
      Figure.share("time that nap waits, of the interval", said.fdiv(wall), truth,
                   least.fdiv(wall)..[least, most].max.fdiv(wall), points: points(truth))
    end
  end

  # Events of one tracepoint. Each has the number of the process as its value.
  class OnCheck < KernelCheck
    EVENT = ["tracepoint:syscalls:sys_enter_getpriority", "--sum", "who"].freeze

    def figures
      rows = of("look")
      [count("events of look", sum(rows, "events"), "asked"),
       count("values of look, by the process's number", sum(rows, "sum").fdiv(@pid), "asked"),
       count("events anywhere", sum(@rows, "events"), "asked")]
    end
  end

  # Compares the waits for the VM lock of threads that compute with the kernel's figures
  # (LockWaits). The last wait of each thread may have no end yet.
  class GvlCheck < Check
    def figures
      @answer["waits"].fetch(@pid).busy(@from, @to).map do |thread, range|
        row = @rows.find { |one| one["thread_id"] == thread } || {}
        Figure.share("time that a busy thread waits, of the interval", row["wall_share"] || 0, range.begin,
                     range)
      end
    end
  end

  # System calls of one function, in all its threads. Each is counted when it ends.
  class SyscallsCheck < Check
    # stat(2) and access(2) are other calls in each version of libc.
    CALLS = /\A(stat|newfstatat|statx|access|faccessat2?)\z/

    # There are always calls of threads that made no traced call: those of the library's own thread.
    def self.lost(answer)
      told = super
      told.except("untold").merge("half_told" => answer["half_told"])
    end

    def figures
      rows = @rows.select { |row| row["function"] == @language.function("look") && CALLS.match?(row["call"]) }
      [count("system calls of look", sum(rows, "calls"), "looks"),
       count("system calls of look that failed", sum(rows, "failed"), "looks_failed")]
    end
  end

  CHECKS = {"calls" => CallsCheck, "exceptions" => ExceptionsCheck, "alloc" => AllocCheck,
            "backtraces" => BacktracesCheck, "slow" => SlowCheck, "hot" => HotCheck, "lines" => LinesCheck,
            "requests" => RequestsCheck, "gc" => GcCheck, "stat" => StatCheck, "latency" => LatencyCheck,
            "flow" => FlowCheck, "gvl" => GvlCheck, "syscalls" => SyscallsCheck, "offcpu" => OffcpuCheck,
            "waits" => WaitsCheck, "on" => OnCheck}.freeze

  def self.monotonic_ns(iso)
    time = Time.iso8601(iso)
    time.to_i * 1_000_000_000 + time.nsec - realtime_less_monotonic
  end

  # In ns. The thread may lose its CPU between the clocks, so the largest difference counts.
  def self.realtime_less_monotonic
    clocks = [Process::CLOCK_REALTIME, Process::CLOCK_MONOTONIC]
    Array.new(9) { clocks.map { |clock| Process.clock_gettime(clock, :nanosecond) }.reduce(:-) }.max
  end
end
