# frozen_string_literal: true

require_relative "../probescope"
require_relative "message"

module Probescope
  # Publishes OpenTelemetry's data of this process for tools outside of it, such as profilers: the
  # resource once (OTEP 4719), and each thread's current span whenever it changes (OTEP 4947). The
  # bridge (`probescope otel`) does not need this, because each event carries the current span. Call
  # it after the SDK is configured:
  #
  #   require "probescope/opentelemetry"
  #   Probescope::OpenTelemetry.install
  module OpenTelemetry
    # Prepended to OpenTelemetry::Context. The context changes in these methods, and when a thread
    # switches fibers.
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

    # Attributes that tell readers the format of the threads' records.
    SCHEMA = {"threadlocal.schema_version" => "tlsdesc_v1_dev", "threadlocal.attribute_key_map" => []}.freeze

    class << self
      # Returns true when the data is published from now on. Returns false where probes cannot work
      # (Probescope.unavailable_reason), where the system lacks the kind of mapping that OTEP 4719
      # needs, or where OpenTelemetry's API is not loaded.
      def install
        return false unless defined?(::OpenTelemetry::Context) && Probescope.install

        ::OpenTelemetry::Context.singleton_class.prepend(Changes)
        Native.follow_fibers
        Native.publish_process_context(message)
      end

      private

      # The attributes of the SDK's resource; empty without an SDK.
      def resource
        provider = ::OpenTelemetry.tracer_provider
        provider.respond_to?(:resource) ? provider.resource.attribute_enumerator.to_h : {}
      end

      def message
        Message.resource(resource) +
          SCHEMA.map { |name, value| Message.field(2, Message.pair(name, value)) }.join
      end
    end
  end
end
