# frozen_string_literal: true

require_relative "table"

module Probescope
  module Commands
    # Functions, sorted by their sampled CPU time.
    class Hot < Table
      PROGRAM = "hot.bt"
      USAGE = "hot -p PID [options]"
      ABOUT = <<~TEXT
        Which functions are on the CPU? Samples the process's stack 99 times a second. Each sample counts
        the CPU time since the previous one. Functions of every file are included. Sorted by SELF. The
        table's head shows the number of samples for each second of CPU time: about 99, fewer during long
        calls into C in which no sample can be taken, more when the process waits for a busy CPU.

          SELF     share of the on-CPU time in the function itself; code written in C counts for its caller
          TOTAL    share with all callees; recursion counts once
          SAMPLES  samples that found the function on the stack
          IN C     the part of SELF in one of Ruby's builtins, which are mostly written in C: the one that
                   took most; --json has all of them
      TEXT
      EXAMPLES = <<~TEXT
        probescope hot -p 4711                 for 10 seconds
        probescope hot -p 4711 -d 60 --min 1   a minute, what has 1 % of the CPU and more
        probescope hot -p 4711 --by-request    for which requests
        probescope hot -p 4711 --json | jq -r '.rows[] | [.function, .self_share] | @tsv'
      TEXT
      MIN = "the on-CPU time (TOTAL)"
      BY_REQUEST = true

      class Report < Tracing::Report
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
