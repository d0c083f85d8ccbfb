# frozen_string_literal: true

require_relative "table"

module Probescope
  module Commands
    # Exact counts and times of function calls.
    class Calls < Table
      PROGRAM = "calls.bt"
      ALL = "functions of gems, packages and the standard library too"
      WIDENED = true
      USAGE = "calls -p PID [options]"
      ABOUT = <<~TEXT
        How often are functions called, and how long do they take? Counts and times every call of the
        application's own functions (--all: of all functions) that begins and ends in the interval, which
        costs each call about 0.1 us. `probescope hot` costs next to nothing. Sorted by SELF.

          SELF     time in the function itself
          ELAPSED  time with all callees; in a recursion the outermost call counts
          RAISED   calls that an exception left
      TEXT
      EXAMPLES = <<~TEXT
        probescope calls -p 4711                  for 10 seconds
        probescope calls -p 4711 --all --top 50   gems, packages and the standard library too
        probescope calls -p 4711 --json | jq '.rows | map(.calls) | add'
      TEXT
      MIN = "the SELF time of all rows"

      class Report < Tracing::Report
        ENDED = "(until TIME): not counted since then, for PROBESCOPE_MAX_OVERHEAD in the process; " \
                "what it takes since is its callers' SELF"

        def rows
          found = result.rows.map { |row| function(row) }
          all = sum(found, :self_ns)
          sorted(found, :self_ns, :calls).map { |row| row.merge(share: ratio(row[:self_ns], all)) }
        end

        def share(row) = row[:share]

        def nothing = "#{super} #{Measuring::ALL_HINT}"

        def below(shown) = (ENDED if shown.rows.any? { |row| row[:counted_until] })

        private

        def function(row)
          ended = result.counted_until(row, :function__stats)
          times = figures(row)
          # The function was taken out before this trace began, so that none of its figures are
          # known.
          times.transform_values! { nil } if ended && times[:calls].zero?
          {**named(row, :function), **times, counted_until: Tracing::Clock.iso(ended)}
        end

        def figures(row)
          calls = row.number("calls") || 0
          elapsed = row.number("elapsed_ns")
          {calls: calls, elapsed_ns: elapsed, self_ns: row.number("self_ns"),
           mean_ns: ratio(elapsed, calls)&.round, max_ns: row.number("max_ns"), raised: row.number("raised")}
        end
      end
    end
  end
end
