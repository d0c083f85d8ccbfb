# frozen_string_literal: true

require "json"
require "net/http"
require "socket"

module Support
  # A real Jaeger for spans: JAEGER=/path, or one on PATH. Without one the examples that ask for it are skipped, and fail in CI.
  class Jaeger < Child
    PORTS = %w[collector.otlp.http collector.otlp.grpc collector.grpc-server collector.http-server query.http-server query.grpc-server
               admin.http].freeze

    # nil where there is none.
    def self.path
      [ENV["JAEGER"], *ENV["PATH"].split(":").flat_map { |dir| %w[jaeger jaeger-all-in-one].map { |name| File.join(dir, name) } }]
        .compact.find { |path| File.executable?(path) && File.file?(path) }
    end

    def self.require!
      return if path
      raise "Jaeger is needed in CI: JAEGER=/path/to/jaeger-all-in-one" if ENV["CI"]

      yield "needs Jaeger: JAEGER=/path/to/jaeger-all-in-one"
    end

    def initialize
      @ports = PORTS.zip(free_ports(PORTS.size)).to_h
      super(self.class.path, *@ports.map { |name, port| "--#{name}.host-port=127.0.0.1:#{port}" }, "--memory.max-traces=20000",
            "--log-level=error", env: Support.plain_env.merge("COLLECTOR_OTLP_ENABLED" => "true"))
      await("Jaeger", within: 60) { get("services") }
    end

    def endpoint = "http://127.0.0.1:#{@ports.fetch("collector.otlp.http")}"

    # Of a service: [{id => Span}, ...], the spans of each trace.
    def traces(service, limit: 10_000)
      get("traces?service=#{service}&limit=#{limit}&lookback=1h").map { |trace| spans(trace) }
    end

    # times in microseconds; parent: id or nil.
    Span = Struct.new(:id, :parent, :name, :service, :began, :elapsed, :tags) do
      def ended = began + elapsed
    end

    private

    # They may be taken by the time that they are wanted, which is seldom.
    def free_ports(count)
      servers = Array.new(count) { TCPServer.new("127.0.0.1", 0) }
      servers.map { |server| server.addr[1] }
    ensure
      servers&.each(&:close)
    end

    def get(path)
      response = Net::HTTP.get_response(URI("http://127.0.0.1:#{@ports.fetch("query.http-server")}/api/#{path}"))
      response.is_a?(Net::HTTPOK) ? JSON.parse(response.body).fetch("data") || [] : nil
    rescue SystemCallError, EOFError
      nil
    end

    def spans(trace)
      trace.fetch("spans").to_h do |span|
        tags = span.fetch("tags").to_h { |tag| tag.values_at("key", "value") }
        service = trace.dig("processes", span.fetch("processID"), "serviceName")
        [span["spanID"], Span.new(span["spanID"], span.fetch("references").first&.fetch("spanID"), span["operationName"], service,
                                  span["startTime"], span["duration"], tags)]
      end
    end
  end
end
