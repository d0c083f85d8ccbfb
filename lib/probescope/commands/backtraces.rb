# frozen_string_literal: true

require_relative "table"

module Probescope
  module Commands
    # Lines that request backtraces as strings, and what these requests cost.
    class Backtraces < Table
      PROGRAM = "backtraces.bt"
      USAGE = "backtraces -p PID [options]"
      ABOUT = <<~TEXT
        Who turns backtraces into strings, and what does it cost? A raise captures a backtrace. Turning the
        backtrace into strings takes five to ten times as long, and happens only on request: `backtrace`,
        `full_message`, `caller`, a logger, an error reporter, or a second raise of the same exception.
        Sorted by TOTAL. Each request costs 2 to 5 us more while this command listens.

          CPU       share of the process's CPU time
          FRAMES    mean number of frames per request
          CALL      the method that was called. full_message includes the message. A backtrace whose
                    strings are kept from the first request costs nothing.
          ASKED AT  nearest line of the application's own code, otherwise the line of the call
          LAST OF   the exception of the last request, and where it was raised
      TEXT
      EXAMPLES = <<~TEXT
        probescope backtraces -p 4711                  for 10 seconds
        probescope backtraces -p 4711 -d 60 --min 1    a minute, what costs 1 % of the CPU and more
        probescope backtraces -p 4711 --json | jq '.rows[] | select(.call == "caller")'
      TEXT
      MIN = "the process's CPU time"

      class Report < Tracing::Report
        def rows = sorted(result.rows.map { |row| asker(row) }, :total_ns, :count)

        def share(row) = row[:cpu_share]

        private

        def asker(row)
          count = row.number("calls") || 0
          total = row.number("total_ns") || 0
          named(row, :call).merge(
            function: known(row.names[3]), count: count, total_ns: total, mean_ns: ratio(total, count)&.round,
            max_ns: row.number("max_ns"), mean_depth: ratio(row.number("depth_sum"), count)&.round(1),
            cpu_share: ratio(total, result.cpu_ns), **exception(row)
          )
        end

        def exception(row)
          type, file, line = row.values("last")
          {type: known(type), raised_at: known(file) && [file, line].join(":")}
        end
      end
    end
  end
end
