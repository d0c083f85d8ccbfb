# frozen_string_literal: true

require_relative "rack"

module Probescope
  # Inserts Probescope::Rack into a Rails application whose Gemfile has this gem, and reports the
  # jobs of ActiveJob and Sidekiq.
  class Railtie < ::Rails::Railtie
    initializer("probescope.rack") do |app|
      app.config.middleware.insert_before(0, Rack)
      app.config.middleware.use(Rack::Routed)
    end

    initializer("probescope.active_job") do
      ActiveSupport.on_load(:active_job) { include Probescope::ActiveJob }
    end

    initializer("probescope.sidekiq") do
      next unless defined?(::Sidekiq.configure_server)

      ::Sidekiq.configure_server do |config|
        config.server_middleware { |chain| chain.add Probescope::Sidekiq }
      end
    end
  end
end
