# frozen_string_literal: true

require_relative "clock"
require_relative "figure"
require_relative "lost"

module Probescope
  module Tracing
    # The result of one trace: rows by name, the interval of each process, what was lost, and the
    # state of the processes. A process whose hooks were never installed has no interval, and is in
    # no sum.
    #
    # Every map of a program has the pid as the first part of its key. Entries of several processes
    # with the same rest of the key are merged into one row: figures and histograms are added up,
    # and where the program says `= max(...)` or `= min(...)`, the largest or smallest value counts.
    # Of other values, the value of an arbitrary process is taken. Commands need no code for this.
    # #by_process returns the parts of single processes.
    class Result
      # Ids of calls and requests are 64 bits.
      ID = (1 << 64) - 1
      # Seconds. A flush fires all its rows in less time.
      LATE = 30
      # The states in which a probe fires.
      ON = %w[on degraded].freeze

      # bpftrace 0.24 and later print integers that do not fit into a double as strings.
      def self.number(value) = value.nil? ? nil : Integer(value)

      # maps: Output#maps. ended: the helper's last answer. program: path of the program. pids: the
      # processes whose rows count; nil where all rows come from the one process that was traced.
      def initialize(output, ended, program, pids: nil)
        @part = !pids.nil?
        @output = output
        @ended = ended
        @program = program
        @pids = pids || (wanted & timed(output) unless ended[:by_pid])
        @merges = Program.merges(program)
        @maps = output.maps.transform_values do |map|
          @pids ? map.select { |key, _| @pids.include?(Result.pid(key)) } : map
        end
      end

      # The number at the start of a key, and the rest of the key.
      def self.pid(key) = key.to_i
      def self.rest(key) = key.sub(/\A\d+,?\s*/, "")
      # The numbers of a key. Versions of bpftrace separate them differently.
      def self.numbers(key) = key.scan(/-?\d+/).map(&:to_i)

      # One row of the program: its names, in the order of the map @row, and its figures in the
      # other maps. keys: one for each process that has the row.
      Row = Struct.new(:names, :keys, :maps, :merges) do
        # The figure in a map; nil where the map has none for this row.
        def number(map)
          found = all(map).map { |value| Result.number(value) }
          found.public_send(merges.fetch(map, :sum)) if found.any?
        end

        # The value in a map that is no figure: that of an arbitrary process. Histograms, in
        # bpftrace's format, are added up.
        def values(map)
          found = all(map)
          histograms = found.size > 1 && found.last.is_a?(Array) && found.last.all?(Hash)
          histograms ? buckets(found.flatten) : found.last
        end

        def pids = keys.map { |key| Result.pid(key) }

        private

        def buckets(all)
          all.group_by { |bucket| bucket.values_at("min", "max") }
             .map { |_, same| same.first.merge("count" => same.sum { |bucket| bucket["count"] }) }
             .sort_by { |bucket| bucket["min"] || -Float::INFINITY }
        end

        def all(map) = maps.fetch(map, {}).values_at(*keys).compact
      end

      def rows
        @maps.fetch("row", {}).group_by { |key, _| Result.rest(key) }.values.map do |same|
          Row.new(same.first.last, same.map(&:first), @maps, @merges)
        end
      end

      # Rows with the same names are merged, whatever their keys: for programs whose keys have
      # addresses, which mean something else in each process. map: has every key that has figures.
      # The block returns the names for a key and what @row has for it, which is nil where the
      # program could not read the names. Without a map, only keys with names have rows.
      def rows_by_names(map = nil)
        named = @maps.fetch("row", {})
        keys = named.keys | @maps.fetch(map, {}).keys
        keys.group_by { |key| block_given? ? yield(key, named[key]) : named[key] }.map do |names, same|
          Row.new(names, same, @maps, @merges)
        end
      end

      # The rows of each process separately: for rows that belong to one process, such as a thread
      # or a single call.
      def rows_apart = @maps.fetch("row", {}).map { |key, names| Row.new(names, [key], @maps, @merges) }

      # The requests of the program: {number => [method, route]}. A program stores both as one text,
      # in which the method has no blanks, or as two texts. A text without a blank, such as
      # "(others)", has no method. bpftrace prints 64-bit numbers as negative in some places.
      def requests
        @requests ||= values("request").to_h do |number, *names|
          method, route = names.size == 1 ? names.first.split(" ", 2) : names
          [Result.request(number), route ? [method, route] : [nil, method]]
        end
      end

      def self.request(number) = Result.number(number) & ID

      # A map as bpftrace printed it: {key => value}.
      def map(name) = @maps.fetch(name, {})

      # The values of a map, whatever its keys.
      def values(map) = @maps.fetch(map, {}).values

      # A map whose keys are those of rows with one more number: {key of a row => {number =>
      # count}}.
      def parts(map)
        @maps.fetch(map, {}).each_with_object(Hash.new { |all, key| all[key] = {} }) do |(key, count), all|
          row, number = key.match(/\A(.*),\s*(-?\d+)\z/m)&.captures
          all[row][number.to_i] = Result.number(count) if row
        end
      end

      # The part of each process that sent anything, sorted by CPU time: {pid => Result}.
      def by_process
        return any? ? {pids.first => self} : {} if @ended[:by_pid]

        pids = @maps.fetch("wall_ns", {}).keys.sort_by do |key|
          [-Result.number(@maps.dig("cpu_ns", key) || 0), Result.pid(key)]
        end
        pids.to_h { |key| [Result.pid(key), Result.new(@output, @ended, @program, pids: [Result.pid(key)])] }
      end

      # Every process that was traced, also later ones and those that ended.
      def pids = @ended.fetch(:targets).map { |member| member[:pid] }

      # The processes whose rows count.
      def counted
        return wanted & @pids if @pids

        any? ? pids : []
      end

      # How a process was covered. left_out: why it is not in the rows, or nil. Without left_out,
      # begin and end are Times. waited_ns: how long it took until its hooks were in. looking_ns:
      # the CPU time that looking took. Both are nil where the library does not report them.
      # taken_out: {probe => Time when its hooks were removed because of their overhead}.
      Covered = Struct.new(:pid, :begin, :end, :wall_ns, :cpu_ns, :looking_ns, :waited_ns, :left_out,
                           :taken_out, keyword_init: true)

      # [Covered, ...] of this part. In a whole trace, also the processes that are left out.
      def processes
        shown = @part ? counted : pids
        members.select { |member| shown.include?(member[:pid]) }.map do |member|
          pid = member[:pid]
          next Covered.new(pid: pid, left_out: member[:absence], taken_out: {}) unless counted.include?(pid)

          Covered.new(pid: pid, begin: began(member), end: ended(member), wall_ns: of("wall_ns", pid),
                      cpu_ns: of("cpu_ns", pid),
                      looking_ns: (of("looking_ns", pid) if member[:tells_of_looking]),
                      waited_ns: member[:waited_ns], taken_out: taken_out(member))
        end
      end

      # The first begin and the last end of these processes: Times, or nil.
      def from = processes.filter_map(&:begin).min
      def to = processes.filter_map(&:end).max

      # The Time until which a row counts, where its figures ended before the others, or nil; of
      # several processes, the earliest. probe: the probe that reports the row.
      def counted_until(row, probe)
        members.flat_map do |member|
          next [] unless member[:tells_of_taken_out]

          keys = @ended[:by_pid] ? row.keys : row.keys.select { |key| Result.pid(key) == member[:pid] }
          keys.filter_map { |key| Result.number(row.maps.dig("out_ns", key)) }.map { |ns| monotonic(ns) } +
            (keys.any? ? [taken_out(member)[probe]].compact : [])
        end.min
      end

      # The Time for a value of bpftrace's `nsecs`.
      def time(nsecs) = Clock.at(nsecs, @ended.fetch(:clock))

      # Seconds of wall time of the process that was covered for longest. wall_ns and cpu_ns are
      # sums over all processes.
      def seconds
        longest = @maps.fetch("wall_ns", {}).values.map { |value| Result.number(value) }.max || 0
        (longest / 1e9).round(3)
      end

      # The wall time of these processes together; of all by default.
      def wall_ns(pids = nil)
        @maps.fetch("wall_ns", {}).sum do |key, value|
          pids.nil? || pids.include?(Result.pid(key)) ? Result.number(value) : 0
        end
      end

      def cpu_ns = total("cpu_ns")

      # The part of these processes' CPU time that looking took; nil unless all of them report it.
      def looking_share
        all = processes.reject(&:left_out)
        Figure.ratio(all.sum(&:looking_ns), cpu_ns) if all.any? && all.all?(&:looking_ns)
      end

      # Samples per second of CPU time; the CPU time is divided among them. 99 when one thread runs
      # all the time and no sample was missed; more when the thread waits for a busy CPU. nil where
      # the program does not count samples.
      def sample_rate
        (total("samples_taken") * 1e9 / cpu_ns).round(1) if @maps.key?("samples_taken") && cpu_ns.positive?
      end

      # {field of `lost` in JSON => number}. What a program could not read is in @unread, or in
      # @unnamed until it can read the names.
      def lost
        sums = Lost::MAPS.transform_values { |map| total(map) }
        {events: @output.lost_events, **sums, unread: sums[:unread] + total("unnamed")}
      end

      # Switches of threads of which offcpu.bt saw only one side.
      def missed = total("missed")

      # The number of the last event that a program printed of a process, or nil.
      def last_number(pid)
        numbers = @output.maps.fetch("number", {})
        Result.number(@ended[:by_pid] ? numbers.values.first : numbers[pid.to_s])
      end

      # Whether the process ended during the trace. pid: as the program prints it.
      def ended?(pid)
        members.any? { |member| member[:ended] && (@ended[:by_pid] || member[:pid] == pid) }
      end

      # What other processes with the same library file sent: how many processes were switched on,
      # and how many of their rows were dropped.
      def others
        rows = @output.maps["row"] || @output.maps.fetch("weight", {})
        {processes: @ended.fetch(:others),
         rows: @ended[:by_pid] ? 0 : rows.keys.count { |key| !wanted.include?(Result.pid(key)) }}
      end

      # :time, :stopped, :target_ended, :tracer_ended or :failed
      def reason = @ended.fetch(:reason).to_sym
      # The error message, or nil.
      def error = @ended[:error]
      # True when a process flushed while bpftrace detached, and the program had not ended that
      # process's interval before.
      def torn? = @ended.fetch(:unended, []).any? { |pid| !closed?(pid) }
      # Whether the program still counted in a process when bpftrace detached, or the process ended: the
      # program itself had not ended the interval, as after Ctrl-C.
      def goes_on?(pid = nil) = (pid ? [pid] : counted).any? { |one| of("on", one) == 1 }
      # What bpftrace printed on stderr.
      def stderr = @ended[:stderr].to_s
      # The members of the session in their last known state: [Member#to_h, ...], read from JSON.
      def members = @ended.fetch(:targets)

      # Whether the probe is on in any of the counted processes. Otherwise its figures are not
      # known.
      def on?(probe)
        members.any? do |member|
          counted.include?(member[:pid]) && ON.include?(member.dig(:probes, probe.to_sym, :state))
        end
      end

      # Whether the runtime of each of these processes can serve the probe.
      def serve?(pids, probe)
        asked = members.select { |member| pids.include?(member[:pid]) }
        asked.all? { |member| member.fetch(:serves).include?(probe) }
      end

      # For a uprobe: [number of processes with its breakpoint, whether all processes could be read].
      def mapping = @ended[:mapping]

      # Later children with another library file, which were not traced.
      def strangers = @ended.fetch(:strangers)
      # The working directories of the processes. An older helper does not report them.
      def roots = members.filter_map { |member| member[:folder] }.uniq - ["/"]
      # Other notes for the user.
      def notes = @ended.fetch(:notes)
      # False when bpftrace printed no map at its end.
      def maps? = @output.maps.any?
      # False when no process completed an interval.
      def any? = total("wall_ns").positive?

      private

      # Computed as the program does it: on bpftrace's clock, from the first stats__done to the last
      # one.
      def closed?(pid)
        began, ended = %w[began ended].map { |map| of(map, pid) }
        began && ended && ended - began >= @ended.fetch(:closing)
      end

      # A probe that was taken out before the process's interval began is left out, as if the
      # process did not serve it.
      def taken_out(member)
        began = began(member)
        found = member[:taken_out].to_h.to_h { |name, ns| [name.to_sym, monotonic(ns)] }
        began ? found.select { |_, time| time > began } : found
      end

      def monotonic(nsecs) = Clock.at(nsecs, @ended.fetch(:monotonic) { @ended.fetch(:clock) })

      def wanted = @wanted ||= pids

      # Processes that completed an interval.
      def timed(output)
        found = output.maps.fetch("wall_ns", {}).select { |_, ns| Result.number(ns).positive? }
        found.keys.map { |key| Result.pid(key) }
      end

      # The figure of a process in a map whose key is the pid.
      def of(map, pid)
        found = @maps.fetch(map, {})
        key = @ended[:by_pid] ? found.keys.first : found.keys.find { |one| Result.pid(one) == pid }
        Result.number(found[key])
      end

      def began(member) = moment(member, "began", "first_cut")
      def ended(member) = moment(member, "ended", "last_cut")

      # When stats__done fired. For programs that add up the rows of a flush: the moment up to which
      # the rows count. The two are on different clocks; if the machine was suspended since then,
      # their difference is wrong, and the moment of the cut is not used.
      def moment(member, map, cut_map)
        fired = of(map, member[:pid])&.then { |nsecs| time(nsecs) }
        cut = of(cut_map, member[:pid]) if member[:tells_of_cut]
        cut &&= monotonic(cut)
        cut && fired - cut < LATE ? cut : fired
      end

      def total(map) = @maps.fetch(map, {}).values.sum { |value| Result.number(value) }
    end
  end
end
