# frozen_string_literal: true

require_relative "config/boot"
require_relative "app"
require_relative "config/traces" if ENV["OTEL_EXPORTER_OTLP_ENDPOINT"]

# A Rails application does not need this line.
use Probescope::Rack unless ENV["WITHOUT_PROBESCOPE"]
run FreightDesk
