# frozen_string_literal: true

require_relative "traced"
require_relative "../host/histogram"

module Probescope
  module Commands
    # Pauses of the garbage collector.
    class Gc < Traced
      PROGRAM = "gc.bt"
      USAGE = "gc -p PID [options]"
      ABOUT = <<~TEXT
        How long does the garbage collector stop the program, and how often? A collection is done in several short steps;
        its time is their sum, the sweep included. Sorted by TOTAL. `probescope alloc` says who makes the garbage.

          SHARE  of the wall time; of several processes, of the wall time of all of them together
          KIND   minor: young objects only; major: all. Python: generation 0, 1, 2; the last is all
          LIVE   Ruby: objects alive after the last one
          FREED  Python: objects that the last one freed
      TEXT
      EXAMPLES = <<~TEXT
        probescope gc -p 4711                 for 10 seconds
        probescope gc -p 4711 --json | jq '.rows[] | {kind, mean_ns, histogram}'
      TEXT
      MIN = "the time of all collections"
      NOTHING = "no garbage was collected"
      HEADINGS = [">SHARE", ">TOTAL", ">COUNT", ">MEAN", ">MAX", ">LIVE", ">FREED", "KIND"].freeze
      OPTIONAL = [">LIVE", ">FREED"].freeze
      # Python tells of other objects than Ruby does, and has kinds of its own.
      GENERATION = "generation "

      private

      def rows(trace)
        found = trace.rows.map { |row| pauses(row) }
        all = sum(found, :total_ns)
        sorted(found, :total_ns, :count).map do |row|
          row.merge(wall_share: ratio(row[:total_ns], trace.wall_ns), share: ratio(row[:total_ns], all))
        end
      end

      def pauses(row)
        total = row.number("total_ns")
        count = row.number("collections")
        kind = known(row.names.first)
        objects = [row.number("objects"), nil]
        objects.reverse! if kind.to_s.start_with?(GENERATION)
        {kind: kind, count: count, total_ns: total, mean_ns: ratio(total, count)&.round,
         max_ns: row.number("max_ns"), live_objects: objects.first, freed_objects: objects.last,
         histogram: Host::Histogram.buckets(row.values("pause_ns"))}
      end

      def cells(row)
        [Host::Figure.share(row[:wall_share]), Host::Figure.time(row[:total_ns]), Host::Figure.count(row[:count]),
         Host::Figure.time(row[:mean_ns]), Host::Figure.time(row[:max_ns]), Host::Figure.count(row[:live_objects]),
         Host::Figure.count(row[:freed_objects]), row[:kind]]
      end

      def below(rows)
        Host::Histogram.render("PAUSE", Host::Histogram.merge(rows.map { |row| row[:histogram] })) { |ns| Host::Figure.time(ns) }
      end
    end
  end
end
