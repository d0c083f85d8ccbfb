# frozen_string_literal: true

require_relative "../probescope"

module Probescope
  # Publishes what OpenTelemetry knows in this process for tools outside of it, such as profilers: the resource once (OTEP 4719),
  # and each thread's current span whenever it changes (OTEP 4947). The bridge needs none of it: it is sent the current span
  # with each event. One line, after the SDK is configured:
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
      # True when it is published from now on; false where probes cannot work (Probescope.unavailable_reason), where the system has
      # no such mappings, or where OpenTelemetry's API is not loaded.
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
        Message.field(1, resource.map { |name, value| Message.field(1, Message.pair(name, value)) }.join) +
          SCHEMA.map { |name, value| Message.field(2, Message.pair(name, value)) }.join
      end
    end

    # As much of protobuf as that takes.
    module Message
      module_function

      def varint(number)
        number &= (1 << 64) - 1
        bytes = []
        while number > 0x7f
          bytes << ((number & 0x7f) | 0x80)
          number >>= 7
        end
        [*bytes, number].pack("C*")
      end

      # A field that is a message, or a string.
      def field(number, bytes) = varint((number << 3) | 2) + varint(bytes.bytesize) + bytes.b

      # KeyValue.
      def pair(name, value) = field(1, name.to_s) + field(2, any(value))

      # AnyValue.
      def any(value)
        case value
        when true, false then varint(2 << 3) + varint(value ? 1 : 0)
        when Integer then varint(3 << 3) + varint(value)
        when Float then varint((4 << 3) | 1) + [value].pack("E")
        when Array then field(5, value.map { |one| field(1, any(one)) }.join)
        else field(1, value.to_s)
        end
      end
    end
  end
end
