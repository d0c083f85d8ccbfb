# frozen_string_literal: true

module Probescope
  module Host
    # Puts numbered events back into their order, and counts those that never come: bpftrace reads
    # one buffer for each CPU, and a thread moves between CPUs; and what finds a buffer full is
    # gone.
    class Numbered
      # So many events are held back at most for one that is missing.
      PATIENCE = 4096

      # Events that were given up.
      attr_reader :lost

      def initialize
        @next = 1
        @held = {}
        @marks = []
        @lost = 0
        @fired = 0
      end

      # Yields what is due now: each event, and before one that follows on lost ones their number,
      # an Integer.
      def push(number, event, &block)
        return if number < @next # given up already

        @held[number] = event
        hand_out(&block)
        skip_to(@held.keys.min, &block) if @held.size > PATIENCE
      end

      # To be yielded when all events up to this one were, or were given up: each such call with a
      # higher number.
      def mark(number, what, &block)
        @marks << [number, what]
        hand_out(&block)
      end

      # So many were fired by now; what was fired before the last time this was said and is not here
      # yet will not come.
      def fired(count, &block)
        expected = @fired
        @fired = count
        skip_to([@held.keys.min, expected + 1].compact.min, &block) while @next <= expected
      end

      # All that is held back.
      def rest(&block)
        skip_to(@held.keys.min, &block) until @held.empty?
      end

      private

      def skip_to(number, &block)
        missing = number - @next
        if missing.positive?
          @lost += missing
          yield missing
          @next = number
        end
        hand_out(&block)
      end

      def hand_out
        loop do
          yield @marks.shift.last while @marks.any? && @marks.first.first < @next
          event = @held.delete(@next) or return
          @next += 1
          yield event
        end
      end
    end
  end
end
