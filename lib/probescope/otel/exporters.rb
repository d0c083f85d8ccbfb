# frozen_string_literal: true

require "opentelemetry/sdk"
require "opentelemetry/exporter/otlp"
require "opentelemetry/exporter/otlp_logs"
require "opentelemetry/exporter/otlp_metrics"
require "time"

module Probescope
  module Otel
    # The SDK's OTLP exporters. They repeat what failed for a while by themselves, asleep, and then say no more than that it
    # failed. Here they tell at once, and whether it is worth another try: Sender sees to the rest.
    module Exporters
      SUCCESS = OpenTelemetry::SDK::Trace::Export::SUCCESS

      module Verdict
        # Seconds after which to try again, 0 where the backend did not say, nil when that is of no use.
        attr_reader :again
        # What failed, as the exporter names it, or nil.
        attr_reader :reason

        # True when it was taken.
        def deliver(data, timeout:)
          @again = @reason = nil
          export(data, timeout: timeout) == SUCCESS
        end

        private

        # Called by the exporter for what may be tried again.
        def backoff?(retry_after: nil, reason: nil, **)
          @again = Exporters.seconds(retry_after.to_s)
          @reason = reason
          false
        end
      end

      # of: the part of the SDK's exporter's path behind the endpoint.
      Spans = Class.new(OpenTelemetry::Exporter::OTLP::Exporter) { include Verdict }
      Logs = Class.new(OpenTelemetry::Exporter::OTLP::Logs::LogsExporter) { include Verdict }
      Metrics = Class.new(OpenTelemetry::Exporter::OTLP::Metrics::MetricsExporter) { include Verdict }

      module_function

      # Retry-After: seconds or a date.
      def seconds(text)
        return text.to_i if text.match?(/\A\d+\z/)

        [Time.httpdate(text) - Time.now, 0].max
      rescue ArgumentError
        0
      end
    end
  end
end
