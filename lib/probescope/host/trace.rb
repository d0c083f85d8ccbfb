# frozen_string_literal: true

require_relative "clock"
require_relative "figure"

module Probescope
  module Host
    # The result of one trace: rows by name, the interval of each process, what was lost, and how
    # the processes stand. Processes without an interval, because their hooks never came in, have no
    # part in any sum.
    #
    # Every map of a program has the pid as its first key. What several processes have under the
    # rest of a key is one row: figures and histograms are added up, and where the program itself
    # says `= max(...)` or `= min(...)` the largest or smallest counts; of what is no figure, some
    # process's. So a command does nothing for it. #of gives the part of one process.
    class Trace
      # Ids of calls and requests are 64 bits.
      ID = (1 << 64) - 1
      # No flush fires its rows for as many seconds.
      LATE = 30
      # States of a probe that fires.
      ON = %w[on degraded].freeze

      # bpftrace 0.24 and later print integers that a double cannot hold as strings.
      def self.number(value) = value.nil? ? nil : Integer(value)

      # maps: Output#maps. ended: the helper's last answer. program: path of the program. pids:
      # whose rows count; nil where all are of the one process that was traced.
      def initialize(output, ended, program, pids: nil)
        @part = !pids.nil?
        @output = output
        @ended = ended
        @program = program
        @pids = pids || (wanted & timed(output) unless ended[:by_pid])
        @merges = Program.merges(program)
        @maps = output.maps.transform_values do |map|
          @pids ? map.select { |key, _| @pids.include?(Trace.pid(key)) } : map
        end
      end

      # Number and rest of a key.
      def self.pid(key) = key.to_i
      def self.rest(key) = key.sub(/\A\d+,?\s*/, "")

      # One row of the program: names, in the order of its map @row, and its figures in the other
      # maps. keys: one for each process that has it.
      Row = Struct.new(:names, :keys, :maps, :merges) do
        # nil where the map has nothing for it.
        def number(map)
          found = all(map).map { |value| Trace.number(value) }
          found.public_send(merges.fetch(map, :sum)) if found.any?
        end

        # What is no figure: some process's. Of a histogram, as bpftrace writes one, the sum.
        def values(map)
          found = all(map)
          histograms = found.size > 1 && found.last.is_a?(Array) && found.last.all?(Hash)
          histograms ? buckets(found.flatten) : found.last
        end

        def pids = keys.map { |key| Trace.pid(key) }

        private

        def buckets(all)
          all.group_by { |bucket| bucket.values_at("min", "max") }
             .map { |_, same| same.first.merge("count" => same.sum { |bucket| bucket["count"] }) }
             .sort_by { |bucket| bucket["min"] || -Float::INFINITY }
        end

        def all(map) = maps.fetch(map, {}).values_at(*keys).compact
      end

      def rows
        @maps.fetch("row", {}).group_by { |key, _| Trace.rest(key) }.values.map do |same|
          Row.new(same.first.last, same.map(&:first), @maps, @merges)
        end
      end

      # The same, with a row of its own for each process: for what belongs to one process, as a
      # thread or a single call does.
      def rows_apart = @maps.fetch("row", {}).map { |key, names| Row.new(names, [key], @maps, @merges) }

      # The requests that the program tells apart: {number => [method, route]}. Programs keep both
      # as one text, in which the method has no blanks, or as two. bpftrace prints numbers of 64
      # bits as negative in some places.
      def requests
        @requests ||= values("request").to_h do |number, *names|
          [Trace.request(number), names.size == 1 ? names.first.split(" ", 2) : names]
        end
      end

      def self.request(number) = Trace.number(number) & ID

      # What a map holds, whatever its keys.
      def values(map) = @maps.fetch(map, {}).values

      # What a map holds whose keys are those of rows and one number more: {key of a row => {number
      # => count}}.
      def parts(map)
        @maps.fetch(map, {}).each_with_object(Hash.new { |all, key| all[key] = {} }) do |(key, count), all|
          row, number = key.match(/\A(.*),\s*(-?\d+)\z/m)&.captures
          all[row][number.to_i] = Trace.number(count) if row
        end
      end

      # The part of each process that sent anything, the one that used most CPU time first: {pid =>
      # Trace}.
      def by_process
        return any? ? {pids.first => self} : {} if @ended[:by_pid]

        pids = @maps.fetch("wall_ns", {}).keys.sort_by do |key|
          [-Trace.number(@maps.dig("cpu_ns", key) || 0), Trace.pid(key)]
        end
        pids.to_h { |key| [Trace.pid(key), Trace.new(@output, @ended, @program, pids: [Trace.pid(key)])] }
      end

      # Every process that was covered, also those that came later and those that ended.
      def pids = @ended.fetch(:targets).map { |target| target[:pid] }

      # Those of them that the rows are of.
      def counted
        return wanted & @pids if @pids

        any? ? pids : []
      end

      # How each process was covered. left_out: why it is not in the rows, or nil; then begin and
      # end are Times, and waited_ns is how long its hooks took to come in and looking_ns the CPU
      # time that looking took, nil where it does not tell; taken_out: {probe => Time when its hooks
      # were taken out for taking too much}.
      Covered = Struct.new(:pid, :begin, :end, :wall_ns, :cpu_ns, :looking_ns, :waited_ns, :left_out,
                           :taken_out, keyword_init: true)

      # [Covered, ...]: those of this part, and in a whole trace those that are left out.
      def processes
        shown = @part ? counted : pids
        targets.select { |target| shown.include?(target[:pid]) }.map do |target|
          pid = target[:pid]
          next Covered.new(pid: pid, left_out: target[:absence], taken_out: {}) unless counted.include?(pid)

          Covered.new(pid: pid, begin: began(target), end: ended(target), wall_ns: of("wall_ns", pid),
                      cpu_ns: of("cpu_ns", pid),
                      looking_ns: (of("looking_ns", pid) if target[:tells_of_looking]),
                      waited_ns: target[:waited_ns], taken_out: taken_out(target))
        end
      end

      # When the first of these processes began, and when the last one ended: Times, or nil.
      def from = processes.filter_map(&:begin).min
      def to = processes.filter_map(&:end).max

      # Until when a row counts whose figures ended before the others: Time, or nil; of several
      # processes the first. probe: which tells it.
      def counted_until(row, probe)
        targets.flat_map do |target|
          next [] unless target[:tells_of_taken_out]

          keys = @ended[:by_pid] ? row.keys : row.keys.select { |key| Trace.pid(key) == target[:pid] }
          keys.filter_map { |key| Trace.number(row.maps.dig("out_ns", key)) }.map { |ns| monotonic(ns) } +
            (keys.any? ? [taken_out(target)[probe]].compact : [])
        end.min
      end

      # From bpftrace's `nsecs`.
      def time(nsecs) = Clock.at(nsecs, @ended.fetch(:clock))

      # Seconds of wall time of the process that was covered for longest, and below nanoseconds of
      # wall time and of CPU time of all together, that the rows cover.
      def seconds
        longest = @maps.fetch("wall_ns", {}).values.map { |value| Trace.number(value) }.max || 0
        (longest / 1e9).round(3)
      end

      # The wall time of these processes together, of all by default.
      def wall_ns(pids = nil)
        @maps.fetch("wall_ns", {}).sum do |key, value|
          pids.nil? || pids.include?(Trace.pid(key)) ? Trace.number(value) : 0
        end
      end

      def cpu_ns = total("cpu_ns")

      # Part of the CPU time of these processes that looking took; nil unless all of them tell.
      def looking_share
        all = processes.reject(&:left_out)
        Figure.ratio(all.sum(&:looking_ns), cpu_ns) if all.any? && all.all?(&:looking_ns)
      end

      # Samples in each second of CPU time, which is what they are divided among: 99 when one thread
      # runs all the time and none was missed, more when it waits for a busy CPU. nil where the
      # program does not count them.
      def sample_rate
        (total("samples_taken") * 1e9 / cpu_ns).round(1) if @maps.key?("samples_taken") && cpu_ns.positive?
      end

      # Events the kernel lost; rows the processes had no memory for; rows without room in
      # bpftrace's maps; samples that could not be taken; details over the limit.
      def lost
        {events: @output.lost_events, rows: total("rows_dropped"), map_full: total("map_full"),
         samples: total("samples_missed"), details: total("details_suppressed")}
      end

      # What came from processes that nobody asked for and that map the same library file: how many
      # were switched on, and how many of their rows were dropped.
      def others
        rows = @output.maps.fetch("row", {})
        {processes: @ended.fetch(:others),
         rows: @ended[:by_pid] ? 0 : rows.keys.count { |key| !wanted.include?(Trace.pid(key)) }}
      end

      # :time, :stopped, :target_ended, :tracer_ended or :failed
      def reason = @ended.fetch(:reason).to_sym
      # Why it failed, or nil.
      def error = @ended[:error]
      # True when a process flushed while bpftrace left, and the program had not ended its interval
      # before.
      def torn? = @ended.fetch(:unended, []).any? { |pid| !closed?(pid) }
      # bpftrace's complaints.
      def stderr = @ended[:stderr].to_s
      # [{pid:, ended:, flushed:, probes: {name => {state:, reason:, ...}}, serves: [names],
      # runtime:, version:}, ...] as last seen.
      def targets = @ended.fetch(:targets)

      # Is the probe on in any of the processes that the rows are of? What it counts is unknown
      # otherwise.
      def on?(probe)
        targets.any? do |target|
          counted.include?(target[:pid]) && ON.include?(target.dig(:probes, probe.to_sym, :state))
        end
      end

      # Can the runtime of each of these processes serve the probe?
      def serve?(pids, probe)
        asked = targets.select { |target| pids.include?(target[:pid]) }
        asked.all? { |target| target.fetch(:serves).include?(probe) }
      end

      # Children that came later with another library file, which nobody traced.
      def strangers = @ended.fetch(:strangers)
      # Folders in which the processes run. An older helper does not tell.
      def roots = targets.filter_map { |target| target[:folder] }.uniq - ["/"]
      # What else is worth a line.
      def notes = @ended.fetch(:notes)
      # False when no process got to the end of an interval.
      def any? = total("wall_ns").positive?

      private

      # As the program does it: by the clock of bpftrace, from its first stats__done to its last
      # one.
      def closed?(pid)
        began, ended = %w[began ended].map { |map| of(map, pid) }
        began && ended && ended - began >= @ended.fetch(:closing)
      end

      # Of what was taken out before its interval it is as if the process did not serve it.
      def taken_out(target)
        began = began(target)
        found = target[:taken_out].to_h.to_h { |name, ns| [name.to_sym, monotonic(ns)] }
        began ? found.select { |_, time| time > began } : found
      end

      def monotonic(nsecs) = Clock.at(nsecs, @ended.fetch(:monotonic) { @ended.fetch(:clock) })

      def wanted = @wanted ||= pids

      # Processes that came to the end of an interval.
      def timed(output)
        found = output.maps.fetch("wall_ns", {}).select { |_, ns| Trace.number(ns).positive? }
        found.keys.map { |key| Trace.pid(key) }
      end

      # What a map that has the pid as its key holds for a process.
      def of(map, pid)
        found = @maps.fetch(map, {})
        key = @ended[:by_pid] ? found.keys.first : found.keys.find { |one| Trace.pid(one) == pid }
        Trace.number(found[key])
      end

      def began(target) = moment(target, "began", "first_cut")
      def ended(target) = moment(target, "ended", "last_cut")

      # When stats__done fired, or of programs that add up the rows of a flush, the moment up to
      # which they count. A machine that was suspended since then has set one clock back against the
      # other.
      def moment(target, map, cut_map)
        fired = of(map, target[:pid])&.then { |nsecs| time(nsecs) }
        cut = of(cut_map, target[:pid]) if target[:tells_of_cut]
        cut &&= monotonic(cut)
        cut && fired - cut < LATE ? cut : fired
      end

      def total(map) = @maps.fetch(map, {}).values.sum { |value| Trace.number(value) }
    end
  end
end
