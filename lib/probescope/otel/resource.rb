# frozen_string_literal: true

require "opentelemetry/sdk"
require "opentelemetry/proto/resource/v1/resource_pb"
require_relative "../host/text"

module Probescope
  module Otel
    # The Resource of a traced process: what it says of itself, and what can be seen from outside.
    module Resource
      NAME = "service.name"
      PID = "process.pid"
      # Field 1 of the message ProcessContext, a Resource.
      RESOURCE = (1 << 3) | 2

      module_function

      # message: Resources.of, as JSON. service_name: what the user wants it to be, or nil. defaults: what the user says of all
      # processes. Nothing is made up: no instance id.
      def of(message, service_name, defaults = {})
        seen = message[:attributes].transform_keys(&:to_s)
        told = published(message[:published])
        name = service_name || told[NAME] || message[:service_name] || seen[NAME] || "unknown_service:#{message[:executable]}"
        # A child that was forked says what its parent published: its number is not that.
        found = defaults.merge(seen, told, seen.slice(PID), NAME => name)
        attributes = found.transform_values { |value| value.is_a?(String) ? Host::Text.clean(value) : value }
        OpenTelemetry::SDK::Resources::Resource.create(attributes)
      end

      # {name => value} of the process context, {} where there is none or where it makes no sense.
      def published(digits)
        return {} if digits.nil?

        found = Opentelemetry::Proto::Resource::V1::Resource.decode(resource([digits].pack("H*")))
        found.attributes.to_h { |one| [one.key, value(one.value)] }.compact
      rescue Google::Protobuf::ParseError, RangeError
        {}
      end

      # The encoded Resource of an encoded ProcessContext; fields of length only.
      def resource(bytes)
        rest = bytes
        until rest.empty?
          tag, length, rest = varint(rest).then { |tag, rest| [tag, *varint(rest)] }
          field = rest.byteslice(0, length)
          return field if tag == RESOURCE

          rest = rest.byteslice(length..) || ""
        end
        ""
      end

      def varint(bytes)
        size = bytes.each_byte.take_while { |byte| byte > 0x7f }.size + 1
        [bytes.byteslice(0, size).each_byte.with_index.sum { |byte, i| (byte & 0x7f) << (7 * i) }, bytes.byteslice(size..) || ""]
      end

      # Scalars and lists of them.
      def value(any)
        case any&.value
        when nil, :kvlist_value, :bytes_value then nil
        when :array_value then any.array_value.values.map { |one| value(one) }.compact
        else any.public_send(any.value)
        end
      end
    end
  end
end
