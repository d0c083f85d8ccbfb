# frozen_string_literal: true

# Generated from providers/tracing.yml by `rake generate`. Do not edit.
module Probescope
  module Tracing
    # Packages that run an application which is not their own.
    RUNNERS = %w[
      bundler celery daphne django falcon flask gunicorn hypercorn passenger pip puma pytest rack
      rackup railties rails rake resque rspec sidekiq spring thin unicorn uvicorn uwsgi waitress
    ].freeze
  end
end
