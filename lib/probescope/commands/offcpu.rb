# frozen_string_literal: true

require_relative "syscalls"
require_relative "table"
require_relative "../tracing/off_cpu"
require_relative "../tracing/thread_states"

module Probescope
  module Commands
    # Time of threads off the CPU, by function and reason.
    class Offcpu < Table
      PROGRAM = "offcpu.bt"
      ALL = "functions of gems, packages and the standard library too"
      WIDENED = true
      BY_REQUEST = true
      USAGE = "offcpu -p PID [options]"
      ABOUT = <<~TEXT
        Where are threads off the CPU, for how long, why, and who wakes them? The time belongs to the innermost
        function of the application (--all: of all functions) that was open. The line above the table has the
        time of all threads of the processes: on the CPU, ready but queued for a CPU, and blocked by reason,
        together their wall time. What was under way when the interval began or ended counts with its part in
        the interval. Sorted by BLOCKED and QUEUED together.

        The trace listens to every system call, switch and wake-up of the machine: about 0.4 us for each system
        call of these processes, 1.4 us for each of their switches and wake-ups, and 0.2 us for each of all
        others. In addition, each call of a function costs about 0.1 us, as in `probescope calls`.

          QUEUED    ready to run, but other threads had the CPU
          TIMES     how often the function's threads were off the CPU
          LONGEST   with its part before the interval
          REASON    the largest one, and its system call. preempted: the thread was pushed off the CPU.
                    timer, lock or child: Ruby waits for all of them, and for its VM lock, in one call.
                    VM lock: CPython 3.11 to 3.14. other: not known
          FUNCTION  (no traced function) where none was open
          REQUEST   with --by-request: method and path of the request that the thread worked for when it left
                    its CPU. In the path, ids are *. - where there is none, or none that is known (as for
                    `probescope syscalls`)
          WOKEN BY  function of the thread of the process that ended most of the time blocked, and how much, if
                    both were in the same futex, or if it released a file lock. Wake-ups through pipes, sockets and timers have none.
      TEXT
      EXAMPLES = <<~TEXT
        probescope offcpu -p 4711                    for 10 seconds
        probescope offcpu -p 4711 -d 60 --min 1      a minute, what has 1 % of the time and more
        probescope offcpu -p 4711 --by-request       for which requests
        probescope offcpu -p 4711 --json | jq '.blocked_ns'
        probescope offcpu -p 4711 --json | jq '.rows[0] | .reasons, .woken_by'
      TEXT
      MIN = "the time off the CPU"
      # What an event costs (docs/performance.md).
      REACH = "listens to every system call, switch and wake-up of the machine: about 0.4 us for each " \
              "system call of the traced processes, 1.4 us for each of their switches and wake-ups, and " \
              "0.2 us for each of all others"
      SLOWLY = "bpftrace still attaches to the kernel's tracepoints; version 0.17 may take half a minute"

      class Report < Tracing::Report
        # A larger share of the wall time that is in none of the figures is a warning.
        LEFT_OVER = 0.02

        def rows
          found = times.waits.group_by { |wait| [request_of(wait.request), place(wait)] }
                       .map { |(request, place), waits| {**request, **function(place, waits)} }
          whole = found.sum { |row| off(row) }
          found.sort_by { |row| [-off(row), *row.values_at(:file, :line, :method, :route).map(&:to_s)] }
               .map { |row| row.merge(share: ratio(off(row), whole)) }
        end

        def share(row) = row[:share]

        def nothing = "#{super} #{Measuring::ALL_HINT}"

        def more
          {reach: [REACH], threads: times.threads, thread_ns: times.thread_ns, on_cpu_ns: times.on_cpu_ns,
           queued_ns: times.queued_ns, blocked_ns: times.blocked_ns, left_over_ns: times.left_over_ns}
        end

        # The time of all threads, in one line.
        def above
          blocked = times.blocked_ns
          reasons = blocked.map { |reason, ns| "#{Tracing::Cells::REASONS.fetch(reason, reason)} #{time(ns)}" }
          "#{times.threads} thread#{"s" unless times.threads == 1}: #{time(times.on_cpu_ns)} on the CPU " \
            "+ #{time(times.queued_ns)} queued + #{time(blocked.values.sum)} blocked" \
            "#{" (#{reasons.join(", ")})" if reasons.any?} = #{time(times.thread_ns)} of wall time; " \
            "#{left_over}"
        end

        def not_covered = [*super, *one_call, *lock_unknown, *more_threads]

        # A warning, or nil.
        def incomplete
          if times.left_over_ns.abs > LEFT_OVER * times.thread_ns
            "the times of the threads do not add up: #{left_over} of #{time(times.thread_ns)}"
          elsif times.beyond_cpu_ns > LEFT_OVER * times.thread_ns
            "of the time on the CPU, #{time(times.beyond_cpu_ns)} were off it: the process's CPU time is less"
          end
        end

        private

        def times = @times ||= Tracing::OffCpu.new(result, by_request: @by_request)
        def time(ns) = Tracing::Figure.time(ns)
        def off(row) = row[:blocked_ns] + row[:queued_ns]

        def left_over
          ns = times.left_over_ns
          share = Tracing::Figure.share(ratio(ns.abs, times.thread_ns))
          "#{time(ns.abs)} (#{share}) #{ns.negative? ? "counted twice" : "left over"}"
        end

        # [name, file, line, whether no traced function was open]
        def place(wait)
          return [nil, nil, nil, true] if wait.site.zero?

          [*(times.site(wait.pid, wait.site) || [nil, nil, nil]).map { |one| known(one) }, false]
        end

        def function((name, file, line, outside), waits)
          {function: name, file: file, line: line, outside: outside, **figures(waits),
           longest_ns: waits.map(&:longest).max, reasons: reasons(waits), woken_by: wakers(waits)}
        end

        def figures(waits)
          {blocked_ns: waits.sum(&:blocked), queued_ns: waits.sum(&:queued), times: waits.sum(&:times)}
        end

        def reasons(waits)
          found = waits.group_by { |wait| times.reason(wait) }.map do |(reason, call), same|
            {reason: reason, call: call, **figures(same)}
          end
          found.sort_by { |one| [-off(one), one[:reason], one[:call].to_s] }
        end

        def wakers(waits)
          keys = waits.map { |wait| [wait.pid, *times.key(wait)] }.uniq
          found = keys.each_with_object(Hash.new(0)) do |key, all|
            times.woken.fetch(key, {}).each do |site, ns|
              all[(times.site(key.first, site) || [nil, nil, nil]).map { |one| known(one) }] += ns
            end
          end
          rows = found.map do |(name, file, line), ns|
            {function: name, file: file, line: line, blocked_ns: ns}
          end
          sorted(rows, :blocked_ns)
        end

        # Ruby's waits that the kernel does not tell apart.
        def one_call
          of = times.waits.select { |wait| times.reason(wait).first == Tracing::OffCpu::RUBY }.map(&:pid).uniq
          versions = of.filter_map { |pid| times.version(pid) }.uniq.sort
          return [] if of.empty?

          ["timer, lock or child: Ruby #{versions.join(" and ")} waits for all of them, and for its VM " \
           "lock, in one call"]
        end

        def lock_unknown
          pids = result.counted.select { |pid| times.runtime(pid) == "python" && !times.lock_known?(pid) }
          return [] if pids.empty?

          ["lock: also the GIL, if there is one; where it is in this CPython is not known"]
        end

        def more_threads
          more = times.more_threads
          return [] if more.zero?

          ["not covered: up to #{Tracing::Figure.count(more)} threads that slept for the whole interval; " \
           "#{Tracing::Figure.count(Tracing::ThreadStates::MOST)} were looked at"]
        end
      end

      private

      def program_arguments = [*super, Syscalls.file_lock]

      # Before the interval begins. A trace that is refused has one line of error.
      def heard(answer)
        super
        warn("probescope: #{SLOWLY}") if answer[:is] == "attaching"
        warn("probescope: #{REACH}") if answer[:is] == "attached"
      end

      def check(result)
        super
        if result.missed.positive?
          say("switches of threads that were not seen: #{result.missed}; " \
              "their times are left over, or on the CPU")
        end
        incomplete = report_of(result).incomplete
        say(incomplete) if incomplete
      end
    end
  end
end
