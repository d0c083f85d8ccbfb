# frozen_string_literal: true

module Support
  # Waiting for a condition with a deadline. The deadline is generous: it only ends a spec that
  # would hang, it measures nothing.
  module Await
    Timeout = Class.new(StandardError)

    module_function

    # Returns what the block returns as soon as it is truthy.
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
