# frozen_string_literal: true

require_relative "../probescope"

module Probescope
  # Jobs are requests too: what runs one says so here, and request__start and request__done fire,
  # with the method JOB, the job's name for a route, and 200 or, when an exception left it, 500.
  module Job
    DONE = 200
    FAILED = 500
    # Of a fiber: the Try that is under way.
    UNDER_WAY = :__probescope_job__

    # One that is under way, by the id that its library gave it.
    Try = Struct.new(:id, :failed)
    private_constant :Try

    class << self
      # Runs the block as the job of this name. system: what runs it, such as "sidekiq"; queue:
      # where it was; traceparent: of who asked for it, where that came along. id: what two
      # libraries know the same job by, such as ActiveJob's on Sidekiq: it is one request, which
      # fails where any of them sees it fail.
      def run(name, system:, queue: nil, traceparent: nil, id: nil, &block)
        return yield if !Probescope.available? || !Native.requests?

        around = Thread.current[UNDER_WAY]
        return joined(around, &block) if id && around && around.id == id

        request = Native::Request.start_job(name, traceparent, system, queue)
        within(request, Try.new(id, false), around, &block)
      end

      private

      # From here on only C is called when the block is over, so that nothing that other threads
      # send comes between.
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

      # ActiveJob's retry_on and discard_on keep from Sidekiq that this try has failed.
      def joined(try)
        try.failed = true
        result = yield
        try.failed = false
        result
      end
    end
  end
end
