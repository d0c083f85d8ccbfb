# frozen_string_literal: true

require_relative "../probescope"

module Probescope
  # Jobs are requests too: what runs one says so here, and request__start and request__done fire, with the method JOB, the job's name
  # for a route, and 200 or, when an exception left it, 500.
  module Job
    DONE = 200
    FAILED = 500
    # Of a fiber: one is under way.
    UNDER_WAY = :__probescope_job__

    class << self
      # Runs the block as the job of this name. system: what runs it, such as "sidekiq"; queue: where it was; traceparent: of who
      # asked for it, where that came along. A job within a job, as ActiveJob's within Sidekiq's, is part of it.
      def run(name, system:, queue: nil, traceparent: nil, &block)
        return yield if !Probescope.available? || !Native.requests? || Thread.current[UNDER_WAY]

        within(Native::Request.start_job(name, traceparent, system, queue), &block)
      end

      private

      def within(request)
        outer = Native.enter_request(request)
        status = FAILED
        Thread.current[UNDER_WAY] = true
        result = yield
        status = DONE
        result
      ensure
        Thread.current[UNDER_WAY] = nil
        Native.enter_request(outer)
        request.done(status, nil)
      end
    end
  end
end
