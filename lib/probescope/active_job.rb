# frozen_string_literal: true

require_relative "job"

module Probescope
  # Reports each job of ActiveJob to tracers, whichever backend runs it. The Railtie includes it in
  # Rails applications. Elsewhere:
  #
  #   require "probescope/active_job"
  #   ActiveJob::Base.include Probescope::ActiveJob
  module ActiveJob
    def self.included(base)
      Probescope.tell_of_requests
      base.around_perform do |job, block|
        Job.run(job.class.name, system: "active_job", queue: job.queue_name, id: job.job_id, &block)
      end
    end
  end
end
