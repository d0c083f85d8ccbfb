# frozen_string_literal: true

# OpenTelemetry as in any application that sends traces: a span for each request, and one for each
# outgoing request. Loaded if OTEL_EXPORTER_OTLP_ENDPOINT is set.
require "opentelemetry-sdk"
require "opentelemetry/exporter/otlp"
require "opentelemetry-instrumentation-net_http"
require "opentelemetry-instrumentation-rack"
require "opentelemetry-instrumentation-sinatra"

ENV["OTEL_SERVICE_NAME"] ||= "freight-desk"
OpenTelemetry::SDK.configure do |config|
  config.logger = Logger.new(File::NULL)
  config.use_all
end

# Publishes the service name for tools outside of this process, such as `probescope otel`.
if defined?(Probescope)
  require "probescope/opentelemetry"
  Probescope::OpenTelemetry.install
end
