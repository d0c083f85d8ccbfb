# frozen_string_literal: true

module Probescope
  module Tracing
    # Bounds the time of a series of requests to a Reader. The time that the requesting thread and
    # the reader's child wait for a CPU is not counted: on a busy machine a command must still find
    # the processes that it finds on an idle one.
    class Deadline
      # The most seconds of such waits that are not counted, which bound the whole.
      MOST_DELAYED = 15.0

      # reader: a Reader, whose #run_delay is read.
      def initialize(seconds, reader)
        @reader = reader
        @before = reader.run_delay
        @ends = now + seconds
      end

      def passed?
        late = now - @ends
        late.positive? && late > [@reader.run_delay - @before, MOST_DELAYED].min
      end

      private

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
