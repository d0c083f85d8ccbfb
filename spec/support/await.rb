# frozen_string_literal: true

module Support
  # Waits for a condition with a deadline. The deadline is long: it only ends a spec that would
  # hang, and measures nothing.
  module Await
    Timeout = Class.new(StandardError)

    module_function

    # Calls the block until its result is truthy, and returns the result.
    def await(what, within: 60, every: 0.002)
      deadline = monotonic + within
      until (result = yield)
        raise Timeout, "not within #{within} s: #{what}" if monotonic > deadline

        sleep every
      end
      result
    end

    # Seconds of CLOCK_MONOTONIC.
    def monotonic = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
