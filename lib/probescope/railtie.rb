# frozen_string_literal: true

require_relative "rack"

module Probescope
  # Puts Probescope::Rack around a Rails application whose Gemfile has this gem.
  class Railtie < ::Rails::Railtie
    initializer("probescope.rack") { |app| app.config.middleware.insert_before(0, Rack) }
  end
end
