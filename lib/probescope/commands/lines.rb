# frozen_string_literal: true

require_relative "by_option"
require_relative "table"

module Probescope
  module Commands
    # Lines, sorted by their sampled CPU time.
    class Lines < Table
      include ByOption

      PROGRAM = "lines.bt"
      OWN_PROGRAM = "lines_own.bt"
      BY = %w[own self].freeze
      USAGE = "lines -p PID [options]"
      ABOUT = <<~TEXT
        Which lines are on the CPU? Samples the process's stack 99 times a second, as `probescope hot` does,
        and names the line that runs. Each sample counts the CPU time since the previous one. Sorted by
        SELF. The lines are the application's, as in `probescope hot`: what libraries cost counts for the
        line of the application that called them. In code that YJIT has compiled, and where the table
        says "charged at the next check", the line is that of the next call, return or end of a loop.

          SELF     share of the on-CPU time of the line and of the libraries that it called. With --by self
                   of the line alone; code written in C counts for the line that calls it
          SAMPLES  samples that found the line running, or in a call of libraries
          CALLED   what the line called: the function that took most, with its share; --json has all
      TEXT
      EXAMPLES = <<~TEXT
        probescope lines -p 4711                 for 10 seconds
        probescope lines -p 4711 -d 60 --min 2   a minute, lines with 2 % of the CPU and more
        probescope lines -p 4711 --by self       lines of libraries, too
        probescope lines -p 4711 --json | jq -r '.rows[] | "\\(.file):\\(.line) \\(.self_share)"'
      TEXT
      MIN = "the on-CPU time"

      class OwnReport < Tracing::OwnReport
        def rows = super.select { |row| row[:samples].positive? }
        def share(row) = row[:self_share]

        private

        def key(frame) = [frame.function, frame.path, frame.line]
        def fields(sum) = {line: known(sum.frame.line), samples: sum.samples}
      end

      class Report < Tracing::Report
        def more = {by: "self"}

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
