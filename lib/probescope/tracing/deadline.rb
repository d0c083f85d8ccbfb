# frozen_string_literal: true

module Probescope
  module Tracing
    # A bound in seconds, in which waits for a CPU are not counted: on a busy machine a command must
    # still find the processes that it finds on an idle one.
    class Deadline
      # The most seconds of such waits that are not counted, which bound the whole.
      MOST_DELAYED = 15.0

      # most: MOST_DELAYED, or less. The block returns the seconds of these waits so far.
      def initialize(seconds, most: MOST_DELAYED, &delay)
        @most = most
        @delay = delay
        @before = delay.call
        @ends = now + seconds
      end

      def passed?
        late = now - @ends
        late.positive? && late > [@delay.call - @before, @most].min
      end

      private

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
