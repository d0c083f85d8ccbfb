# frozen_string_literal: true

require_relative "table"

module Probescope
  module Commands
    # Allocation sites.
    class Alloc < Table
      PROGRAM = "alloc.bt"
      USAGE = "alloc -p PID [options]"
      ABOUT = <<~TEXT
        Which lines allocate objects, and of which class? Counts every allocation. Sorted by COUNT, because
        the cost of an allocation, and later of its collection, depends little on the size of the slot.

          BYTES  sum of the objects' slots, without what a long string or array stores outside of its slot
          CLASS  in Python 3.13 and later. Earlier versions show the size of the block, and do not count
                 objects from a free list.
      TEXT
      EXAMPLES = <<~TEXT
        probescope alloc -p 4711              for 10 seconds
        probescope alloc -p 4711 --min 5      lines with 5 % of the allocations and more
        probescope alloc -p 4711 --by-request for which requests
        probescope alloc -p 4711 --json | jq '.rows[] | select(.class == "String")'
      TEXT
      MIN = "all allocations"
      BY_REQUEST = true

      class Report < Tracing::Report
        def rows
          found = result.rows.map do |row|
            {**request(row), **named(row, :class), count: row.number("allocated"), bytes: row.number("bytes")}
          end
          all = sum(found, :count)
          sorted(found, :count, :bytes).map { |row| row.merge(count_share: ratio(row[:count], all)) }
        end

        def share(row) = row[:count_share]

        # Printed for CPython's reference tracer only. With the allocator hook the probe is not
        # "on", and its reason says so.
        def below(_shown)
          traced = result.members.any? do |member|
            member[:runtime] == "python" && member.dig(:probes, :object__stats, :state) == "on"
          end
          return unless traced

          "Told by CPython's reference tracer: every object. " \
            "Not in BYTES: what it keeps elsewhere, as a bytearray does its bytes."
        end
      end
    end
  end
end
