# frozen_string_literal: true

require_relative "table"

module Probescope
  module Commands
    # Lines, sorted by their sampled CPU time.
    class Lines < Table
      PROGRAM = "lines.bt"
      USAGE = "lines -p PID [options]"
      ABOUT = <<~TEXT
        Which lines are on the CPU? Samples the process's stack 99 times a second, as `probescope hot` does,
        and names the line that runs. Each sample counts the CPU time since the previous one. Sorted by
        SELF. In code that YJIT has compiled, and where the table says "charged at the next check", the line
        is that of the next call, return or end of a loop.

          SELF     share of the on-CPU time; code written in C counts for the line that calls it
          SAMPLES  samples that found the line running
      TEXT
      EXAMPLES = <<~TEXT
        probescope lines -p 4711                 for 10 seconds
        probescope lines -p 4711 -d 60 --min 2   a minute, lines with 2 % of the CPU and more
        probescope lines -p 4711 --json | jq -r '.rows[] | "\\(.file):\\(.line) \\(.self_share)"'
      TEXT
      MIN = "the on-CPU time"

      class Report < Tracing::Report
        def rows
          found = result.rows.map do |row|
            {**named(row, :function), self: row.number("self_ns"), looks: row.number("samples")}
          end
          on_cpu = sum(found, :self)
          sorted(found, :self, :looks).map do |row|
            row.merge(self_share: ratio(row[:self], on_cpu), samples: row[:looks])
          end
        end

        def share(row) = row[:self_share]
      end
    end
  end
end
