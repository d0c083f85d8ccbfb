# frozen_string_literal: true

require "uri"
require_relative "../cli"

module Probescope
  module Otel
    # Where OTLP is sent, by the rules of OpenTelemetry's environment: a signal's own variable is taken as it is, and to the common
    # one the signal's path is added.
    class Endpoints
      DEFAULT = "http://localhost:4318"
      SIGNALS = %w[traces logs metrics].freeze
      PROTOCOL = "http/protobuf"

      # given: --endpoint, or nil. Raises CLI::Usage where it is none, or where another protocol is asked for.
      def initialize(given, environment = ENV)
        @base = given || present(environment["OTEL_EXPORTER_OTLP_ENDPOINT"]) || DEFAULT
        @own = SIGNALS.to_h { |signal| [signal, given ? nil : present(environment["OTEL_EXPORTER_OTLP_#{signal.upcase}_ENDPOINT"])] }
        check_protocols(environment)
        [@base, *@own.values.compact].each { |url| check(url) }
      end

      # signal: "traces", "logs" or "metrics".
      def [](signal)
        return "#{@base.chomp("/")}/v1/#{signal}" unless @own[signal]

        URI(@own[signal]).tap { |uri| uri.path = "/" if uri.path.empty? }.to_s
      end

      private

      def present(text) = text.to_s.strip.empty? ? nil : text.strip

      def check(url)
        uri = URI(url)
        return if uri.is_a?(URI::HTTP) && !uri.host.to_s.empty? && uri.port.between?(1, 65_535)

        raise URI::InvalidURIError
      rescue URI::InvalidURIError
        raise CLI::Usage.new("#{url.inspect} is no URL of an OTLP/HTTP endpoint", "--endpoint #{DEFAULT}")
      end

      def check_protocols(environment)
        ["", *SIGNALS.map { |signal| "_#{signal.upcase}" }].each do |signal|
          name = "OTEL_EXPORTER_OTLP#{signal}_PROTOCOL"
          protocol = present(environment[name]) or next
          next if protocol == PROTOCOL

          raise CLI::Usage.new("#{name} asks for #{protocol}; OTLP is sent as #{PROTOCOL} only", "unset #{name}, and send to port 4318")
        end
      end
    end
  end
end
