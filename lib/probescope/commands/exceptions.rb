# frozen_string_literal: true

require_relative "traced"

module Probescope
  module Commands
    # Raise sites, the one whose backtraces cost most first.
    class Exceptions < Traced
      PROGRAM = "exceptions.bt"
      USAGE = "exceptions -p PID [options]"
      ABOUT = <<~TEXT
        Which exceptions are costly, and which line raises them? Counts every raise of the process, rescued or not, and the
        time that it spends on capturing their backtraces. Sorted by that time.

          CPU         share of the process's CPU time that went into the backtraces
          BACKTRACES  the same as time
          DEPTH       mean number of frames in them
          RESCUED AT  where the last one was rescued, on Ruby 3.3 and later
      TEXT
      EXAMPLES = <<~TEXT
        probescope exceptions -p 4711                  for 10 seconds
        probescope exceptions -p 4711 -d 60 --min 1    a minute, what costs 1 % of the CPU and more
        probescope exceptions -p 4711 --json | jq '.rows[0]'
      TEXT
      MIN = "the process's CPU time"
      NOTHING = "no exception was raised"
      HEADINGS = [">CPU", ">BACKTRACES", ">RAISED", ">PER S", ">DEPTH", "TYPE", "RAISED AT", "IN", "RESCUED AT"].freeze

      private

      def rows(trace)
        sorted(trace.rows.map { |row| site(row, trace) }, :backtrace_cost_ns, :count)
      end

      # strings_ns, the time that backtraces take to become strings, is not measured yet.
      def site(row, trace)
        type, file, line, function = row.names
        count = row.number("raised") || 0
        capture = row.number("backtrace_ns")
        share = ratio(capture, trace.cpu_ns)
        {type: known(type), file: known(file), line: known(line), function: known(function), count: count,
         per_second: trace.seconds.positive? ? (count / trace.seconds).round(3) : nil, backtrace_cost_ns: capture,
         capture_ns: capture, strings_ns: nil, mean_depth: ratio(row.number("depth_sum"), count)&.round(1), cpu_share: share,
         rescued_at: row.values("rescued_at")&.join(":"), share: share}
      end

      def cells(row)
        [Host::Figure.share(row[:cpu_share]), Host::Figure.time(row[:backtrace_cost_ns]), Host::Figure.count(row[:count]),
         Host::Figure.decimal(row[:per_second]), Host::Figure.decimal(row[:mean_depth]), row[:type], where(row),
         row[:function] || "-", row[:rescued_at] || "-"]
      end
    end
  end
end
