# frozen_string_literal: true

require_relative "table"
require_relative "../tracing/histogram"

module Probescope
  module Commands
    # Pauses of the garbage collector.
    class Gc < Table
      PROGRAM = "gc.bt"
      USAGE = "gc -p PID [options]"
      ABOUT = <<~TEXT
        How long does the garbage collector stop the program, and how often? A collection takes several
        short steps; its time is their sum, including the sweep. Sorted by TOTAL. `probescope alloc` shows
        which lines make the garbage.

          SHARE  of the wall time; of several processes, of the wall time of all of them together
          KIND   minor: young objects only; major: all. Python: generation 0, 1, 2; the last is all
          LIVE   Ruby: objects alive after the last collection
          FREED  Python: objects that the last collection freed
      TEXT
      EXAMPLES = <<~TEXT
        probescope gc -p 4711                 for 10 seconds
        probescope gc -p 4711 --json | jq '.rows[] | {kind, mean_ns, histogram}'
      TEXT
      MIN = "the time of all collections"

      class Report < Tracing::Report
        # Prefix of Python's kinds. Python counts freed objects, Ruby counts live ones.
        GENERATION = "generation "

        def rows
          found = result.rows.map { |row| pauses(row) }
          all = sum(found, :total_ns)
          sorted(found, :total_ns, :count).map do |row|
            row.merge(wall_share: ratio(row[:total_ns], result.wall_ns), share: ratio(row[:total_ns], all))
          end
        end

        def share(row) = row[:share]

        def below(shown)
          pauses = Tracing::Histogram.merge(shown.rows.map { |row| row[:histogram] })
          Tracing::Histogram.render("PAUSE", pauses) { |ns| Tracing::Figure.time(ns) }
        end

        private

        def live? = true

        def pauses(row)
          total = row.number("total_ns")
          count = row.number("collections")
          kind = known(row.names.first)
          objects = [row.number("objects"), nil]
          objects.reverse! if kind.to_s.start_with?(GENERATION)
          {kind: kind, count: count, total_ns: total, mean_ns: ratio(total, count)&.round,
           max_ns: row.number("max_ns"), live_objects: objects.first, freed_objects: objects.last,
           histogram: Tracing::Histogram.buckets(row.values("pause_ns"))}
        end
      end
    end
  end
end
