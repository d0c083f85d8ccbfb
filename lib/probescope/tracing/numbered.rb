# frozen_string_literal: true

module Probescope
  module Tracing
    # Puts numbered events back into their order, and counts lost ones. Events arrive out of order
    # because bpftrace reads one buffer per CPU, and a thread moves between CPUs. An event that
    # finds a buffer full is lost.
    class Numbered
      # The most events that are held back while one is missing.
      PATIENCE = 4096

      # How many events were given up.
      attr_reader :lost

      def initialize
        @next = 1
        @held = {}
        @marks = []
        @lost = 0
        @fired = 0
      end

      # Yields each event that is due. Before an event that follows lost ones, yields how many were
      # lost, an Integer.
      def push(number, event, &block)
        return if number < @next # was given up

        @held[number] = event
        hand_out(&block)
        skip_to(@held.keys.min, &block) if @held.size > PATIENCE
      end

      # Yields `what` once every event up to this number was yielded or given up. Each call must
      # have a higher number than the last one.
      def mark(number, what, &block)
        @marks << [number, what]
        hand_out(&block)
      end

      # count: how many events the process has fired so far. An event that was fired before the
      # previous call, and has not arrived yet, is given up.
      def fired(count, &block)
        expected = @fired
        @fired = count
        skip_to([@held.keys.min, expected + 1].compact.min, &block) while @next <= expected
      end

      # Yields all events that are held back.
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
