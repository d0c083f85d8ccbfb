# frozen_string_literal: true

require_relative "table"

module Probescope
  module Commands
    # Raise sites, sorted by the cost of their backtraces.
    class Exceptions < Table
      PROGRAM = "exceptions.bt"
      USAGE = "exceptions -p PID [options]"
      ABOUT = <<~TEXT
        Which exceptions are costly, and which line raises them? Counts every raise of the process, rescued
        or not, and the time for capturing backtraces and turning them into strings. Sorted by that time.
        A column without any known value is left out. Python 3.12 and later reports only exceptions that
        Python code handles; Python 3.11 does not report those that C code swallows.

          CPU           share of the process's CPU time that the backtraces took
          BACKTRACES    the same as a time
          STRINGS       the part of BACKTRACES for turning backtraces into strings
          DEPTH         mean number of frames in the backtraces
          APP AT        nearest line of the application's own code, where a gem or a package raised
          AT ONCE       share of the exceptions that the raising function rescued itself, so that no other
                        function has seen them (Python, and Ruby 3.3 and later)
          RESCUED AT    where the last one was rescued or caught (same versions as AT ONCE)
          FORMATTED AT  the last line that turned a backtrace into strings; `probescope backtraces` has all
      TEXT
      EXAMPLES = <<~TEXT
        probescope exceptions -p 4711                  for 10 seconds
        probescope exceptions -p 4711 -d 60 --min 1    a minute, what costs 1 % of the CPU and more
        probescope exceptions -p 4711 --by-request     for which requests
        probescope exceptions -p 4711 --json | jq '.rows[0]'
      TEXT
      MIN = "the process's CPU time"
      BY_REQUEST = true

      class Report < Tracing::Report
        # The minor version in a Python version such as "3.13.0".
        MINOR = /\A3\.(\d+)/

        def rows = sorted(result.rows.map { |row| site(row) }, :backtrace_cost_ns, :count)

        def share(row) = row[:cpu_share]

        def nothing = unhandled? ? "no exception was raised that Python code handled" : super

        def not_covered
          [*super,
           ("not in it: what was raised in Python 3.12 and later and no Python code handled" if unhandled?),
           ("not in it: what was raised in Python 3.11 and C code swallowed" if pythons.min&.<(12))].compact
        end

        private

        # The minor version of each process that runs Python.
        def pythons
          @pythons ||= result.members.select { |member| member[:runtime] == "python" }
                             .map { |member| member[:version][MINOR, 1].to_i }
        end

        def unhandled? = pythons.max&.>=(12)

        def site(row)
          count = row.number("raised") || 0
          raised = {function: known(row.names[3]), count: count, per_second: per_second(count)}
          request(row).merge(named(row, :type), raised, cost(row),
                             {mean_depth: ratio(row.number("depth_sum"), count)&.round(1)},
                             places(row), {rescued_at_once_share: at_once(row, count)})
        end

        def cost(row)
          capture = row.number("backtrace_ns") || 0
          # Without backtrace__done, the cost of turning backtraces into strings is not known.
          strings = if result.serve?(row.pids, "backtrace__done")
                      row.number("strings_ns") || 0
                    else
                      row.number("strings_ns")
                    end
          cost = capture + (strings || 0)
          {backtrace_cost_ns: cost, capture_ns: capture, strings_ns: strings,
           cpu_share: ratio(cost, result.cpu_ns)}
        end

        # The application's own line is shown only where it differs from the line that raised.
        def places(row)
          app = place(row, "app_at")
          {app_at: (app unless app == row.names[1, 2].join(":")), rescued_at: place(row, "rescued_at"),
           formatted_at: place(row, "formatted_at")}
        end

        # nil where the runtime does not report rescues.
        def at_once(row, count)
          ratio(row.number("rescued_at_once"), count) if result.serve?(row.pids, "exception__rescue")
        end
      end
    end
  end
end
