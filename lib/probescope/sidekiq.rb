# frozen_string_literal: true

require_relative "job"

module Probescope
  # Reports each job of Sidekiq to tracers. The Railtie adds it in Rails. Elsewhere:
  #
  #   require "probescope/sidekiq"
  #   Sidekiq.configure_server do |config|
  #     config.server_middleware { |chain| chain.add Probescope::Sidekiq }
  #   end
  class Sidekiq
    Probescope.tell_of_requests

    # job: Sidekiq's Hash. ActiveJob wraps its jobs in a class of its own for Sidekiq, and then the
    # Hash names the job's class in "wrapped".
    def call(_instance, job, queue, &block)
      wrapped = job["wrapped"]
      Job.run(wrapped || job["class"], system: "sidekiq", queue: queue, traceparent: job["traceparent"],
                                       id: (id_within(job["args"]) if wrapped), &block)
    end

    private

    # The id of the wrapped ActiveJob.
    def id_within(arguments)
      inner = arguments.first if arguments.is_a?(Array)
      inner["job_id"] if inner.is_a?(Hash)
    end
  end
end
