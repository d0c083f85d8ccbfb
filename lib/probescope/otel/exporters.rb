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
    # The SDK's OTLP exporters. They repeat what failed for a while by themselves, asleep, and then
    # say no more than that it failed. Here they tell at once, and whether it is worth another try:
    # Sender sees to the rest.
    module Exporters
      SUCCESS = OpenTelemetry::SDK::Trace::Export::SUCCESS

      # The last answer of a backend, or why there is none: the exporters keep neither.
      module Answers
        # Bytes of an answer, its head included: whoever listens at the endpoint may send without
        # end.
        MOST_BYTES = 1 << 20

        # Of a connection's socket.
        module Counted
          # How many bytes may be read yet.
          attr_writer :left

          def read_nonblock(...)
            super.tap do |read|
              @left -= read.bytesize if read.is_a?(String)
              raise Net::ProtocolError, "an answer of more than #{MOST_BYTES} bytes" if @left.negative?
            end
          end
        end

        # No answers, which the exporters take for final ones, but for EOFError.
        BROKEN = [Timeout::Error, IOError, Net::ProtocolError, Net::HTTPBadResponse,
                  Net::HTTPHeaderSyntaxError].freeze
        # The name of a class.
        attr_reader :error
        attr_reader :answer

        def start(*) = noting { super }

        # A connection's own timeout is for each read of it.
        def request(wanted, *)
          # What is compressed may become a thousand times as long.
          wanted["accept-encoding"] = "identity"
          @socket&.io&.left = MOST_BYTES
          noting { @answer = Timeout.timeout(read_timeout, Net::ReadTimeout) { super } }
        end

        def forget = @answer = @error = nil

        private

        # Called by Net::HTTP, also when it connects anew within a request.
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
        # Answers after which OTLP has another try make sense.
        AGAIN = %w[408 429 502 503 504].freeze
        MESSAGE_BYTES = 300

        # Seconds after which to try again, 0 where the backend did not say, nil when that is of no
        # use.
        attr_reader :again
        # What failed: a status of HTTP, the class of an error, or nil.
        attr_reader :reason
        # How many of what was taken the backend has rejected all the same, and why.
        attr_reader :rejected, :rejection

        def initialize(endpoint:, transport:)
          @transport = transport
          super(endpoint: endpoint, headers: transport.headers, compression: transport.compression)
          # They would drop its query, and add to one that is that of OTEL_EXPORTER_OTLP_ENDPOINT
          # too.
          @path = URI(endpoint).request_uri
        end

        # True when it was taken.
        def deliver(data, timeout:)
          @again = @reason = @rejection = nil
          @rejected = 0
          @http.forget
          return partly if export(data, timeout: timeout) == SUCCESS

          @reason ||= @http.answer&.code
          false
        end

        private

        # The exporters would read these files when they connect, as nobody, and keys of one kind
        # only.
        def http_connection(uri, verify_mode, *)
          super(uri, verify_mode, nil, nil, nil).tap do |http|
            @transport.certificates.each { |name, value| http.public_send("#{name}=", value) }
            http.extend(Answers)
          end
        end

        # Called by the exporter for what may be tried again.
        def backoff?(retry_after: nil, reason: nil, **)
          @reason = @http.error || reason || @http.answer&.code
          if @http.answer.nil? || AGAIN.include?(@http.answer.code)
            @again = Exporters.seconds(retry_after.to_s)
          end
          false
        end

        # A partial success: nothing of it is to be sent again.
        def partly
          partial = self.class::RESPONSE.decode(@http.answer.body.to_s).partial_success or return true
          @rejected = partial[self.class::REJECTED]
          @rejection = partial.error_message.byteslice(0, MESSAGE_BYTES).scrub("")
          true
        rescue Google::Protobuf::ParseError
          true # not all backends answer with what they should
        end
      end

      # exporter: the SDK's of one signal. response: what a backend answers it. rejected: the field
      # of that which counts.
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

      # Seconds that a backend may ask to be left alone. It may be another one by then, at the same
      # endpoint.
      LONGEST_PAUSE = 300

      module_function

      # Retry-After: seconds or a date.
      def seconds(text)
        seconds = text.match?(/\A\d+\z/) ? text.to_i : Time.httpdate(text) - Time.now
        seconds.clamp(0, LONGEST_PAUSE)
      rescue ArgumentError
        0
      end
    end
  end
end
