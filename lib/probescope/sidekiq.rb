# frozen_string_literal: true

require_relative "job"

module Probescope
  # Tells tracers of each job of Sidekiq. Rails has it by itself; elsewhere:
  #
  #   require "probescope/sidekiq"
  #   Sidekiq.configure_server do |config|
  #     config.server_middleware { |chain| chain.add Probescope::Sidekiq }
  #   end
  class Sidekiq
    Probescope.tell_of_requests

    # job: Sidekiq's Hash. Of ActiveJob's, which it wraps in one of its own, it says the name.
    def call(_instance, job, queue, &block)
      wrapped = job["wrapped"]
      Job.run(wrapped || job["class"], system: "sidekiq", queue: queue, traceparent: job["traceparent"],
                                       id: (id_within(job["args"]) if wrapped), &block)
    end

    private

    # That of ActiveJob's.
    def id_within(arguments)
      inner = arguments.first if arguments.is_a?(Array)
      inner["job_id"] if inner.is_a?(Hash)
    end
  end
end
