# frozen_string_literal: true

require "net/http"
require "opentelemetry/sdk"
require "opentelemetry/exporter/otlp"
require "opentelemetry/exporter/otlp_logs"
require "opentelemetry/exporter/otlp_metrics"
require "time"
require "timeout"

module Probescope
  module Otel
    # The SDK's OTLP exporters, without their own retries. The SDK's exporters repeat a failed
    # request by themselves, sleep meanwhile, and finally report only that it failed. These report a
    # failure at once, and whether another try is useful. Sender retries.
    module Exporters
      SUCCESS = OpenTelemetry::SDK::Trace::Export::SUCCESS

      # Keeps the last answer of a backend, or the reason why there is none. The SDK's exporters
      # keep neither.
      module Answers
        # The most bytes of an answer, including its head. Whoever listens at the endpoint may send
        # without end.
        MOST_BYTES = 1 << 20

        # Extends the socket of a connection.
        module Counted
          # How many bytes may still be read.
          attr_writer :left

          def read_nonblock(...)
            super.tap do |read|
              @left -= read.bytesize if read.is_a?(String)
              raise Net::ProtocolError, "an answer of more than #{MOST_BYTES} bytes" if @left.negative?
            end
          end
        end

        # Errors that the SDK's exporters treat as final. EOFError is raised instead, which the
        # exporters treat as worth a retry.
        BROKEN = [Timeout::Error, IOError, Net::ProtocolError, Net::HTTPBadResponse,
                  Net::HTTPHeaderSyntaxError].freeze
        # The class name of the last error.
        attr_reader :error
        attr_reader :answer

        def start(*) = noting { super }

        # The connection's own timeout applies to each single read; this one applies to the whole
        # request.
        def request(wanted, *)
          # A compressed answer may become a thousand times as long.
          wanted["accept-encoding"] = "identity"
          @socket&.io&.left = MOST_BYTES
          noting { @answer = Timeout.timeout(read_timeout, Net::ReadTimeout) { super } }
        end

        def forget = @answer = @error = nil

        private

        # Net::HTTP calls this for every connection, including a new one within a request.
        def on_connect
          super
          @socket.io.extend(Counted).left = MOST_BYTES
        end

        def noting
          yield
        rescue StandardError => e
          @error = e.class.name
          raise BROKEN.any? { |broken| e.is_a?(broken) } ? EOFError : e
        end
      end

      module Verdict
        # Statuses for which OTLP allows another try.
        AGAIN = %w[408 429 502 503 504].freeze
        MESSAGE_BYTES = 300

        # Seconds after which to try again: 0 where the backend did not say, nil where another try
        # is of no use.
        attr_reader :again
        # The cause of the failure: an HTTP status, the class of an error, or nil.
        attr_reader :reason
        # How many items of a successful request the backend has rejected, and why.
        attr_reader :rejected, :rejection

        def initialize(endpoint:, transport:)
          @transport = transport
          super(endpoint: endpoint, headers: transport.headers, compression: transport.compression)
          # The SDK's exporters would drop the endpoint's query, and would append a path to an
          # endpoint that equals OTEL_EXPORTER_OTLP_ENDPOINT.
          @path = URI(endpoint).request_uri
        end

        # Returns true when the backend has accepted the data.
        def deliver(data, timeout:)
          @again = @reason = @rejection = nil
          @rejected = 0
          @http.forget
          return partly if export(data, timeout: timeout) == SUCCESS

          @reason ||= @http.answer&.code
          false
        end

        private

        # The SDK's exporters would read the certificate files when they connect, as nobody, and
        # accept keys of one kind only.
        def http_connection(uri, verify_mode, *)
          super(uri, verify_mode, nil, nil, nil).tap do |http|
            @transport.certificates.each { |name, value| http.public_send("#{name}=", value) }
            http.extend(Answers)
          end
        end

        # The SDK's exporter calls this for a failure that may be retried.
        def backoff?(retry_after: nil, reason: nil, **)
          @reason = @http.error || reason || @http.answer&.code
          if @http.answer.nil? || AGAIN.include?(@http.answer.code)
            @again = Exporters.seconds(retry_after.to_s)
          end
          false
        end

        # Handles a partial success; no part of it may be sent again.
        def partly
          partial = self.class::RESPONSE.decode(@http.answer.body.to_s).partial_success or return true
          @rejected = partial[self.class::REJECTED]
          @rejection = partial.error_message.byteslice(0, MESSAGE_BYTES).scrub("")
          true
        rescue Google::Protobuf::ParseError
          true # not every backend sends a valid answer
        end
      end

      # exporter: the SDK's exporter of one signal. response: the class of the backend's answer.
      # rejected: the field of the answer with the number of rejected items.
      def self.of(exporter, response, rejected)
        Class.new(exporter) do
          include Verdict
          const_set(:RESPONSE, response)
          const_set(:REJECTED, rejected)
        end
      end

      COLLECTOR = Opentelemetry::Proto::Collector
      Spans = of(OpenTelemetry::Exporter::OTLP::Exporter, COLLECTOR::Trace::V1::ExportTraceServiceResponse,
                 "rejected_spans")
      Logs = of(OpenTelemetry::Exporter::OTLP::Logs::LogsExporter,
                COLLECTOR::Logs::V1::ExportLogsServiceResponse, "rejected_log_records")
      Metrics = of(OpenTelemetry::Exporter::OTLP::Metrics::MetricsExporter,
                   COLLECTOR::Metrics::V1::ExportMetricsServiceResponse, "rejected_data_points")
      BY_SIGNAL = {"traces" => Spans, "logs" => Logs, "metrics" => Metrics}.freeze

      # The longest pause in seconds that a backend may request. By then another backend may serve
      # the same endpoint.
      LONGEST_PAUSE = 300

      module_function

      # Parses Retry-After, which is a number of seconds or a date.
      def seconds(text)
        seconds = text.match?(/\A\d+\z/) ? text.to_i : Time.httpdate(text) - Time.now
        seconds.clamp(0, LONGEST_PAUSE)
      rescue ArgumentError
        0
      end
    end
  end
end
