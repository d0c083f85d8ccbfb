# frozen_string_literal: true

require "openssl"
require "uri"
require_relative "../cli"

module Probescope
  module Otel
    # How one signal is sent, by OpenTelemetry's environment: a signal's own variable takes
    # precedence over the common one, and an empty variable counts as unset. Everything is read
    # while the process still has privilege.
    class Transport
      COMPRESSIONS = %w[gzip none].freeze
      TIMEOUT = 10 # seconds
      # Smaller numbers are taken as seconds, as the SDKs of Ruby and Python do. The specification
      # says milliseconds.
      LEAST_MILLISECONDS = 100

      INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"
      METRICS_EVERY = 60_000 # ms

      TEMPORALITY = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"

      # A line for the log about a setting that is not supported; or nil.
      def self.complaint(environment = ENV)
        wanted = environment[TEMPORALITY].to_s.strip.downcase
        unless ["", "cumulative"].include?(wanted)
          "#{TEMPORALITY} asks for #{wanted}; figures are sent as cumulative only"
        end
      end

      # Seconds between two exports of metrics.
      def self.metric_interval(environment = ENV)
        text = environment[INTERVAL].to_s.strip
        milliseconds = text.empty? ? METRICS_EVERY : Integer(text, 10)
        raise ArgumentError unless milliseconds.positive?

        milliseconds / 1000.0
      rescue ArgumentError
        raise CLI::Usage.new("#{INTERVAL} is no number of milliseconds", "#{INTERVAL}=#{METRICS_EVERY}")
      end

      # timeout: seconds for one request. certificates: {attribute of Net::HTTP => value}.
      attr_reader :headers, :compression, :timeout, :certificates

      # With this variable, the SDK's exporters do not verify certificates.
      UNVERIFIED = "OTEL_RUBY_EXPORTER_OTLP_SSL_VERIFY_NONE"

      # signal: "traces", "logs" or "metrics". authorization: the header's value, used where the
      # environment sets none. Raises CLI::Usage for a value that cannot be used.
      def initialize(signal, environment = ENV, authorization: nil)
        check_verified(environment)
        @signal = signal
        @environment = environment
        @compression = read("COMPRESSION", COMPRESSIONS.first) { |text| compressions(text) }
        @headers = read("HEADERS", {}) { |text| pairs(text) }
        authorization = nil if @headers.any? { |name, _| name.casecmp?("authorization") }
        @headers = {"authorization" => authorization, **@headers} if authorization
        @timeout = read("TIMEOUT", TIMEOUT) { |text| seconds(Float(text)) }
        @certificates = {cert_store: read("CERTIFICATE", nil) { |path| authorities(path) }, **client,
                         key: read("CLIENT_KEY", nil) { |path| OpenSSL::PKey.read(File.read(path)) }}.compact
      end

      private

      def check_verified(environment)
        return unless environment.key?(UNVERIFIED)

        raise CLI::Usage.new("#{UNVERIFIED} would send to whoever answers",
                             "OTEL_EXPORTER_OTLP_CERTIFICATE=/path/to/the/authority.pem")
      end

      # The block's value for the variable, or the default.
      def read(name, default)
        variables = ["OTEL_EXPORTER_OTLP_#{@signal.upcase}_#{name}", "OTEL_EXPORTER_OTLP_#{name}"]
        variable = variables.find { |one| !@environment[one].to_s.strip.empty? } or return default
        yield @environment[variable].strip
      rescue ArgumentError, SystemCallError, OpenSSL::OpenSSLError => e
        # The message does not quote the value, which may be a secret.
        raise CLI::Usage.new("#{variable} cannot be used: #{e.message}",
                             "see https://opentelemetry.io/docs/specs/otel/protocol/exporter/")
      end

      def compressions(text)
        COMPRESSIONS.include?(text) ? text : raise(ArgumentError, "#{COMPRESSIONS.join(" or ")} is wanted")
      end

      # Parses "name=value,name=value", percent-encoded.
      def pairs(text)
        text.split(",").to_h do |pair|
          name, value = found = pair.split("=", 2).map do |part|
            URI.decode_www_form_component(part.strip.gsub("+", "%2B"))
          end
          next found unless name.to_s.empty? || value.nil? || found.join.match?(/[[:cntrl:]]/)

          raise ArgumentError, "name=value,... is wanted, percent-encoded"
        end
      end

      def seconds(number)
        raise ArgumentError, "a number of milliseconds is wanted" unless number.positive?

        number < LEAST_MILLISECONDS ? number : number / 1000
      end

      def authorities(path)
        File.open(path, &:close) # raises a clear error
        OpenSSL::X509::Store.new.add_file(path)
      end

      # The first certificate is the client's own.
      def client
        own, *chain = read("CLIENT_CERTIFICATE", nil) do |path|
          OpenSSL::X509::Certificate.load(File.read(path))
        end
        {cert: own, extra_chain_cert: (chain if chain.any?)}
      end
    end
  end
end
