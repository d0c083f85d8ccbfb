# frozen_string_literal: true

require_relative "../probescope"

module Probescope
  # A job is reported as a request. A library that runs jobs calls Job.run, and request__start and
  # request__done fire. The method is JOB, the route is the job's name, and the status is 200, or
  # 500 when the job raised an exception.
  module Job
    DONE = 200
    FAILED = 500
    # Key of the fiber-local variable with the Try of the current job.
    UNDER_WAY = :__probescope_job__

    # A job that is running. id: the id that its library gave it.
    Try = Struct.new(:id, :failed)
    private_constant :Try

    class << self
      # Runs the block as the job of this name. system: the library that runs it, such as "sidekiq";
      # queue: its queue; traceparent: that of the code which enqueued the job, where the job
      # carries it. id: the id under which two libraries know the same job, such as ActiveJob and
      # Sidekiq. The job is then reported as one request, which fails when either library sees it
      # fail.
      def run(name, system:, queue: nil, traceparent: nil, id: nil, &block)
        return yield if !Probescope.available? || !Native.requests?

        around = Thread.current[UNDER_WAY]
        return joined(around, &block) if id && around && around.id == id

        request = Native::Request.start_job(name, traceparent, system, queue)
        within(request, Try.new(id, false), around, &block)
      end

      private

      # After the block only C functions are called, so that no exception from another thread
      # (Thread#raise) can interrupt the clean-up.
      def within(request, try, around)
        outer = Native.enter_request(request)
        thread = Thread.current
        thread[UNDER_WAY] = try unless thread.frozen?
        result = yield
        returned = true
        result
      ensure
        thread[UNDER_WAY] = around unless thread.frozen?
        Native.enter_request(outer)
        request.done(returned && !try.failed ? DONE : FAILED, nil)
      end

      # ActiveJob's retry_on and discard_on rescue the exception of a failed try, so that Sidekiq
      # does not see it.
      def joined(try)
        try.failed = true
        result = yield
        try.failed = false
        result
      end
    end
  end
end
