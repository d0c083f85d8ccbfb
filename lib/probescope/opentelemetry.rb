# frozen_string_literal: true

require_relative "../probescope"
require_relative "message"

module Probescope
  # Publishes what OpenTelemetry knows in this process for tools outside of it, such as profilers:
  # the resource once (OTEP 4719), and each thread's current span whenever it changes (OTEP 4947).
  # The bridge needs none of it: it is sent the current span with each event. One line, after the
  # SDK is configured:
  #
  #   require "probescope/opentelemetry"
  #   Probescope::OpenTelemetry.install
  module OpenTelemetry
    # The context changes here, and with a fiber.
    module Changes
      def attach(...)
        super
      ensure
        Native.publish_thread_context
      end

      def detach(...)
        super
      ensure
        Native.publish_thread_context
      end

      def clear(...)
        super
      ensure
        Native.publish_thread_context
      end
    end

    # What readers need to know of the threads' records.
    SCHEMA = {"threadlocal.schema_version" => "tlsdesc_v1_dev", "threadlocal.attribute_key_map" => []}.freeze

    class << self
      # True when it is published from now on; false where probes cannot work
      # (Probescope.unavailable_reason), where the system has no such mappings, or where
      # OpenTelemetry's API is not loaded.
      def install
        return false unless defined?(::OpenTelemetry::Context) && Probescope.install

        ::OpenTelemetry::Context.singleton_class.prepend(Changes)
        Native.follow_fibers
        Native.publish_process_context(message)
      end

      private

      # The SDK's resource; without an SDK there is none.
      def resource
        provider = ::OpenTelemetry.tracer_provider
        provider.respond_to?(:resource) ? provider.resource.attribute_enumerator.to_h : {}
      end

      # The message ProcessContext.
      def message
        Message.resource(resource) +
          SCHEMA.map { |name, value| Message.field(2, Message.pair(name, value)) }.join
      end
    end
  end
end
