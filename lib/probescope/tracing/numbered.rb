# frozen_string_literal: true

module Probescope
  module Tracing
    # Puts numbered events back into their order, and counts lost ones. Events arrive out of order
    # because bpftrace reads one buffer per CPU, and a thread moves between CPUs. An event that
    # finds a buffer full is lost. bpftrace's own count of lost events is not enough: the kernel
    # reports a loss with the next event of the same CPU, and there may be none (decision 220).
    class Numbered
      # The most events that are held back while one is missing.
      PATIENCE = 4096

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

      # For the end: yields all events that are held back, and gives up all other events that the
      # process has fired. last: the number of the process's last event, if it is known. Otherwise
      # the count of the last #fired is used.
      def rest(last = nil, &block)
        skip_to(@held.keys.min, &block) until @held.empty?
        skip_to(end_of(last) + 1, &block) if @next <= end_of(last)
      end

      # How many events were given up so far, or will be given up by #rest(last).
      def missing(last = nil) = @lost + end_of(last) + 1 - @next - @held.size

      private

      # The number of the last event that is known to have been fired. @next - 1 is the last event
      # that was yielded or given up.
      def end_of(last) = [@next - 1, @fired, last, @held.keys.max].compact.max

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
