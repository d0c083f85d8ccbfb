# frozen_string_literal: true

# OpenTelemetry as an application has it that sends traces: a span for each request, one for each
# request that it makes itself. Loaded where OTEL_EXPORTER_OTLP_ENDPOINT says where to send them.
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

# Tells tools outside of this process, such as `probescope otel`, by which name it goes.
if defined?(Probescope)
  require "probescope/opentelemetry"
  Probescope::OpenTelemetry.install
end
