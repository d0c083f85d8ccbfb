# frozen_string_literal: true

require "uri"
require_relative "../cli"

module Probescope
  module Otel
    # The URLs to which OTLP is sent, by the rules of OpenTelemetry's environment: a signal's own
    # variable is taken unchanged; the common variable gets the signal's path appended.
    class Endpoints
      DEFAULT = "http://localhost:4318"
      SIGNALS = %w[traces logs metrics].freeze
      PROTOCOL = "http/protobuf"

      # given: --endpoint, or nil. Raises CLI::Usage for an invalid URL, and for another protocol.
      # Error messages never contain what may be a password.
      def initialize(given, environment = ENV)
        @base = given || present(environment["OTEL_EXPORTER_OTLP_ENDPOINT"]) || DEFAULT
        @own = SIGNALS.to_h do |signal|
          [signal, given ? nil : present(environment["OTEL_EXPORTER_OTLP_#{signal.upcase}_ENDPOINT"])]
        end
        check_protocols(environment)
        [@base, *@own.values.compact].each { |url| check(url) }
      end

      # User name and password of a URL, or nil.
      def self.credentials(url)
        URI(url).userinfo
      rescue URI::InvalidURIError
        url[%r{//([^/@]*)@}, 1]
      end

      # The URL for a signal ("traces", "logs" or "metrics"), without user name and password.
      def [](signal)
        uri = URI(@own[signal] || "#{@base.chomp("/")}/v1/#{signal}")
        uri.path = "/" if uri.path.empty?
        uri.userinfo = nil
        uri.to_s
      end

      # The value of the Authorization header for the signal, from the URL's user name and password;
      # nil without them.
      def authorization(signal)
        found = self.class.credentials(@own[signal] || @base) or return
        "Basic #{[URI.decode_www_form_component(found.gsub("+", "%2B"))].pack("m0")}"
      end

      private

      def present(text) = text.to_s.strip.empty? ? nil : text.strip

      def check(url)
        uri = URI(url)
        return if uri.is_a?(URI::HTTP) && !uri.host.to_s.empty? && uri.port.between?(1, 65_535)

        raise URI::InvalidURIError
      rescue URI::InvalidURIError
        shown = url.sub(%r{//[^/]*@}, "//...@")
        raise CLI::Usage.new("#{shown.inspect} is no URL of an OTLP/HTTP endpoint", "--endpoint #{DEFAULT}")
      end

      def check_protocols(environment)
        ["", *SIGNALS.map { |signal| "_#{signal.upcase}" }].each do |signal|
          name = "OTEL_EXPORTER_OTLP#{signal}_PROTOCOL"
          protocol = present(environment[name]) or next
          next if protocol == PROTOCOL

          raise CLI::Usage.new("#{name} asks for #{protocol}; OTLP is sent as #{PROTOCOL} only",
                               "unset #{name}, and send to port 4318")
        end
      end
    end
  end
end
