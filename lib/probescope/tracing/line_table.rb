# frozen_string_literal: true

module Probescope
  module Tracing
    # The line table of a code object of CPython 3.11 and later (co_linetable). Each entry has a
    # byte with its form and the number of its instructions, and then what the form says
    # (Objects/locations.md of CPython). Columns are left out.
    module LineTable
      # Bytes of an instruction.
      UNIT = 2
      # Forms of entries. Those below ONE_LINE have one more byte and the line of the entry before.
      ONE_LINE = 10
      NO_COLUMNS = 13
      LONG = 14
      NONE = 15

      module_function

      # The line of an instruction, or nil. table: its first bytes, or all. first: the code's first
      # line. offset: of the instruction, in bytes.
      def line(table, first, offset)
        bytes = table.each_byte
        passed = 0
        line = first
        loop do # until there is no byte
          head = bytes.next
          form = head >> 3 & 15
          line += difference(form, bytes)
          passed += ((head & 7) + 1) * UNIT
          next unless offset < passed

          return offset.negative? || form == NONE ? nil : line
        end
        nil
      end

      # Reads the rest of an entry. Returns its line minus that of the entry before. Raises
      # StopIteration where the bytes end.
      def difference(form, bytes)
        return 0 if form == NONE

        found = form >= NO_COLUMNS ? signed(bytes) : [form - ONE_LINE, 0].max
        skip(form, bytes)
        found
      end

      def skip(form, bytes)
        case form
        when LONG then 3.times { number(bytes) }
        when NO_COLUMNS then nil
        else (form < ONE_LINE ? 1 : 2).times { bytes.next }
        end
      end

      # A number in six bits a byte, the lowest first. Bit 6 tells that another byte follows.
      def number(bytes)
        byte = bytes.next
        byte.anybits?(64) ? (byte & 63) | (number(bytes) << 6) : byte & 63
      end

      # The lowest bit is the sign.
      def signed(bytes)
        found = number(bytes)
        found.odd? ? -(found >> 1) : found >> 1
      end
    end
  end
end
