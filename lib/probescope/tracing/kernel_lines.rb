# frozen_string_literal: true

require_relative "line_table"
require_relative "result"

module Probescope
  module Tracing
    # Lines at which functions of CPython were, from what the part "line" of a program has stored.
    class KernelLines
      # What the line of a row is.
      CURRENT = "current"
      DEFINITION = "definition"

      # result: Result.
      def initialize(result)
        @result = result
        @lines = {}
      end

      # {line:, line_is:} of a function that was at this instruction. defined: the line of its
      # definition, nil or 0 where that is not known.
      def place(pid, instruction, defined)
        defined = Result.number(defined)
        defined = nil if defined&.zero?
        line = current(pid, instruction, defined)
        {line: line || defined, line_is: line ? CURRENT : (DEFINITION if defined)}
      end

      private

      # nil where it is not known, or where the code is another function's.
      def current(pid, instruction, defined)
        start, table, size, first = codes[[pid, instruction]]
        return unless start && first == defined

        @lines.fetch([pid, instruction]) do |key|
          @lines[key] = LineTable.line(table(pid, table, size), first, instruction - start)
        end
      end

      # {[pid, instruction] => [address of the first instruction, of the line table, its bytes, first
      # line]}
      def codes
        @codes ||= @result.map("code").to_h do |key, found|
          [Result.numbers(key), found.map { |value| Result.number(value) }]
        end
      end

      # The beginning of a line table, as far as it was read.
      def table(pid, address, size)
        @parts ||= @result.map("table").transform_keys { |key| Result.numbers(key) }
        parts = (0..).lazy.map { |i| @parts[[pid, address, i]] }.take_while(&:itself).to_a
        words = parts.flatten.map { |word| Result.request(word) }
        words.pack("Q<*").byteslice(0, size)
      end
    end
  end
end
