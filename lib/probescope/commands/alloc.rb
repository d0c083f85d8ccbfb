# frozen_string_literal: true

require_relative "traced"

module Probescope
  module Commands
    # Allocation sites.
    class Alloc < Traced
      PROGRAM = "alloc.bt"
      USAGE = "alloc -p PID [options]"
      ABOUT = <<~TEXT
        Which lines allocate objects, and of which class? Counts every allocation. Sorted by COUNT: what an allocation costs
        the program, and later the collector, depends little on the size of its slot.

          BYTES  sum of the objects' slots; what a long string or array keeps outside of its slot is not in it
          CLASS  Python 3.13 and later; before, the size of the block, and what comes out of a free list is not seen
      TEXT
      EXAMPLES = <<~TEXT
        probescope alloc -p 4711              for 10 seconds
        probescope alloc -p 4711 --min 5      lines with 5 % of the allocations and more
        probescope alloc -p 4711 --by-request for which requests
        probescope alloc -p 4711 --json | jq '.rows[] | select(.class == "String")'
      TEXT
      MIN = "all allocations"
      BY_REQUEST = true
      # A process has up to 41,943 rows of requests where nobody gave it more memory (ext/core/by_request.c), and those of none.
      KEYS_BY_REQUEST = 49_152
      NOTHING = "nothing was allocated"
      HEADINGS = [">SHARE", ">COUNT", ">BYTES", "CLASS", "ALLOCATED AT"].freeze

      private

      def rows(trace)
        found = trace.rows.map do |row|
          type, file, line = row.names
          {**request(row, trace), class: known(type), file: known(file), line: known(line), count: row.number("allocated"),
                                  bytes: row.number("bytes")}
        end
        all = sum(found, :count)
        @by_tracer = trace.targets.any? { |target| target[:runtime] == "python" && target.dig(:probes, :object__stats, :state) == "on" }
        sorted(found, :count, :bytes).map do |row|
          share = ratio(row[:count], all)
          row.merge(count_share: share, share: share)
        end
      end

      def cells(row)
        [Host::Figure.share(row[:count_share]), Host::Figure.count(row[:count]), Host::Figure.bytes(row[:bytes]),
         row[:class], where(row)]
      end

      # Where it is the allocator that tells, the state of the probe says so.
      def below(_rows)
        return unless @by_tracer

        "Told by CPython's reference tracer: every object. Not in BYTES: what it keeps elsewhere, as a bytearray does its bytes."
      end
    end
  end
end
