# frozen_string_literal: true

require_relative "by_option"
require_relative "table"

module Probescope
  module Commands
    # Functions, sorted by their sampled CPU time.
    class Hot < Table
      include ByOption

      PROGRAM = "hot.bt"
      OWN_PROGRAM = "hot_own.bt"
      BY = %w[own self total].freeze
      USAGE = "hot -p PID [options]"
      ABOUT = <<~TEXT
        Which functions are on the CPU? Samples the process's stack 99 times a second. Each sample counts
        the CPU time since the previous one. Sorted by SELF. The table's head shows the number of samples for
        each second of CPU time: about 99, fewer during long calls into C in which no sample can be taken,
        more when the process waits for a busy CPU.

        The rows are the application's functions. What libraries cost counts for the function of the
        application that called them, and a line below the table tells the share that no function of the
        application called. The head says which files are the application's: those of --own GLOB; else
        those that the process counts as its own; else those of the package that was started. If nothing is
        known to be the application's, each function counts for itself (--by self). --by-request is by self,
        too.

          SELF     share of the on-CPU time in the function itself and in the libraries that it called. With
                   --by self in itself alone; code written in C counts for its caller
          TOTAL    share with all callees; recursion counts once
          SAMPLES  samples that found the function on the stack
          LINE     the line of the function with the largest part of SELF
          CALLED   what the function called: the function that took most, with its share; --json has all
          IN C     with --by self, the part of SELF in one of Ruby's builtins, which are mostly written in C:
                   the one that took most; --json has all of them
      TEXT
      EXAMPLES = <<~TEXT
        probescope hot -p 4711                 for 10 seconds
        probescope hot -p 4711 -d 60 --min 1   a minute, what has 1 % of the CPU and more
        probescope hot -p 4711 --by self       functions of libraries, too
        probescope hot -p 4711 --own 'app/*'   these files are the application's
        probescope hot -p 4711 --by-request    for which requests
        probescope hot -p 4711 --json | jq -r '.rows[] | [.function, .self_share] | @tsv'
      TEXT
      MIN = "the on-CPU time (TOTAL)"
      BY_REQUEST = true

      class OwnReport < Tracing::OwnReport
        private

        def key(frame) = [frame.function, frame.path]

        def fields(sum)
          {line: known(sum.frame.defined), samples: sum.total_samples, largest_line: largest_line(sum),
           builtins: called(sum.builtins).map { |one| one.slice(:function, :share) }}
        end

        def largest_line(sum)
          known(sum.lines.max_by { |line, weight| [weight, -line] }&.first) if own.known?
        end
      end

      class Report < Tracing::Report
        def more = {by: "self"}

        def rows
          names = result.values("builtin").to_h.transform_keys { |number| Tracing::Result.number(number) }
          parts = result.parts("in_builtin_ns")
          found = result.rows.map do |row|
            times = {self: row.number("self_ns"), total: row.number("total_ns"), looks: row.number("samples")}
            request(row).merge(named(row, :function), times, {in_builtins: in_builtins(row, parts, names)})
          end
          on_cpu = sum(found, :self)
          sorted(found, :self, :total).map { |row| row.merge(shares(row, on_cpu)) }
        end

        def share(row) = row[:total_share]

        private

        # {name => ns}
        def in_builtins(row, parts, names)
          row.keys.flat_map { |key| parts.key?(key) ? parts[key].to_a : [] }
             .group_by { |number, _| names[number] }.transform_values { |all| all.sum(&:last) }
        end

        def shares(row, on_cpu)
          builtins = row[:in_builtins].sort_by { |name, ns| [-ns, name.to_s] }
                                      .map { |name, ns| {function: known(name), share: ratio(ns, on_cpu)} }
          {self_share: ratio(row[:self], on_cpu), total_share: ratio(row[:total], on_cpu),
           samples: row[:looks], builtins: builtins}
        end
      end
    end
  end
end
