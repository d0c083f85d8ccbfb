# frozen_string_literal: true

require "json"
require "net/http"
require "socket"

module Support
  # A real Jaeger for spans: JAEGER=/path, or one on PATH. Without it the examples are skipped, and
  # fail in CI.
  class Jaeger < Child
    PORTS = %w[collector.otlp.http collector.otlp.grpc collector.grpc-server collector.http-server
               query.http-server query.grpc-server admin.http].freeze

    # Returns nil without a Jaeger.
    def self.path
      in_path = ENV["PATH"].split(":").flat_map do |dir|
        %w[jaeger jaeger-all-in-one].map { |name| File.join(dir, name) }
      end
      [ENV["JAEGER"], *in_path].compact.find { |path| File.executable?(path) && File.file?(path) }
    end

    def self.require!
      return if path
      raise "Jaeger is needed in CI: JAEGER=/path/to/jaeger-all-in-one" if ENV["CI"]

      yield "needs Jaeger: JAEGER=/path/to/jaeger-all-in-one"
    end

    def initialize
      @ports = PORTS.zip(free_ports(PORTS.size)).to_h
      super(self.class.path, *@ports.map { |name, port| "--#{name}.host-port=127.0.0.1:#{port}" },
            "--memory.max-traces=20000", "--log-level=error",
            env: Support.plain_env.merge("COLLECTOR_OTLP_ENABLED" => "true"))
      await("Jaeger", within: 60) { answers.get("services") }
    end

    def endpoint = "http://127.0.0.1:#{@ports.fetch("collector.otlp.http")}"

    # The URL that accepts only OTLP over gRPC.
    def grpc = "http://127.0.0.1:#{@ports.fetch("collector.otlp.grpc")}"

    # Returns the spans of each trace of a service: [{id => Span}, ...].
    def traces(service) = answers.traces(service)

    private

    def answers = Answers.new("http://127.0.0.1:#{@ports.fetch("query.http-server")}")

    # Other processes might take these ports before Jaeger does, but rarely.
    def free_ports(count)
      servers = Array.new(count) { TCPServer.new("127.0.0.1", 0) }
      servers.map { |server| server.addr[1] }
    ensure
      servers&.each(&:close)
    end

    # Jaeger's answers to queries.
    class Answers
      # trace: id of the trace. Times are in microseconds. parent: id or nil. ours: whether the
      # bridge sent it. raised: attributes of its exceptions.
      Span = Struct.new(:trace, :id, :parent, :name, :service, :began, :elapsed, :tags, :raised) do
        def ended = began + elapsed
        def ours? = tags.values_at("otel.scope.name", "otel.library.name").include?("probescope")
      end

      def initialize(url)
        @url = url
      end

      def traces(service, limit: 10_000)
        get("traces?service=#{service}&limit=#{limit}&lookback=1h").map { |trace| spans(trace) }
      end

      # Returns nil if Jaeger does not answer.
      def get(path)
        response = Net::HTTP.get_response(URI("#{@url}/api/#{path}"))
        response.is_a?(Net::HTTPOK) ? JSON.parse(response.body).fetch("data") || [] : nil
      rescue SystemCallError, EOFError
        nil
      end

      private

      def spans(trace)
        trace.fetch("spans").to_h do |span|
          service = trace.dig("processes", span.fetch("processID"), "serviceName")
          raised = (span["logs"] || []).map { |log| tags(log["fields"]) }
          parent = span.fetch("references").first&.fetch("spanID")
          [span["spanID"], Span.new(span["traceID"], span["spanID"], parent, span["operationName"], service,
                                    span["startTime"], span["duration"], tags(span["tags"]), raised)]
        end
      end

      def tags(list) = list.to_h { |tag| tag.values_at("key", "value") }
    end
  end
end
