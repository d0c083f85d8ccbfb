# frozen_string_literal: true

require "opentelemetry/sdk"
require "opentelemetry/proto/resource/v1/resource_pb"
require_relative "../tracing/text"

module Probescope
  module Otel
    # The Resource of a traced process: attributes from the kernel, and attributes that the process
    # claims. A process may be hostile. Claims about facts that the kernel knows get names of their
    # own, and claims are limited to what a backend accepts.
    module Resource
      NAME = "service.name"
      # Attributes that come from the kernel or the bridge.
      KNOWN = /\A(process\.|host\.|container\.id\z|k8s\.pod\.uid\z|probescope\.)/
      CLAIMED = "probescope.claimed."
      # Limits of claims: MOST attributes, KEY and VALUE characters, LIST elements.
      MOST = 128
      KEY = 255
      VALUE = 4096
      LIST = 128
      SCALARS = %i[string_value bool_value int_value double_value].freeze
      # The tag of field 1 of the message ProcessContext, a Resource.
      RESOURCE = (1 << 3) | 2
      # The most bytes of a varint.
      VARINT = 10

      module_function

      # message: Resources.of, parsed from JSON. service_name: the user's choice, or nil. defaults:
      # the user's attributes for all processes. Nothing is made up, such as an instance id.
      def of(message, service_name, defaults = {})
        seen = message[:attributes].transform_keys(&:to_s).transform_values { |value| clean(value) }
        own, about = claims(message).partition { |key, _| !key.match?(KNOWN) }.map(&:to_h)
        name = service_name || own[NAME] || "unknown_service:#{message[:executable]}"
        other = about.reject { |key, value| seen[key] == value }.transform_keys { |key| CLAIMED + key }
        OpenTelemetry::SDK::Resources::Resource.create(defaults.merge(own, other, seen, NAME => clean(name)))
      end

      # {key => value} of the process's claims. What it publishes at run time takes precedence over
      # what it was started with.
      def claims(message)
        started = {NAME => message[:service_name]}.compact
        said = (message[:claims] || {}).transform_keys(&:to_s)
        said = started.merge(said, started, published(message[:published])).first(MOST)
        said.to_h { |key, value| [clean(key)[0, KEY], clean(value)] }.except("")
      end

      def clean(value)
        case value
        when String then Tracing::Text.clean(value)[0, VALUE]
        when Array then value.first(LIST).map { |one| clean(one) }
        else value
        end
      end

      # {name => value} of the process context; {} without a valid one.
      def published(digits)
        return {} if digits.nil?

        found = Opentelemetry::Proto::Resource::V1::Resource.decode(resource([digits].pack("H*")))
        found.attributes.to_h { |one| [one.key, value(one.value)] }.compact
      rescue Google::Protobuf::ParseError, RangeError
        {}
      end

      # The encoded Resource in an encoded ProcessContext. Only fields with a length are expected.
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
        size = bytes.each_byte.first(VARINT).take_while { |byte| byte > 0x7f }.size + 1
        raise RangeError, "a number of more than 64 bits" if size > VARINT

        [bytes.byteslice(0, size).each_byte.with_index.sum { |byte, i| (byte & 0x7f) << (7 * i) },
         bytes.byteslice(size..) || ""]
      end

      # Returns scalars, and lists of scalars of one kind; nothing else can be an attribute.
      def value(any)
        case any&.value
        when nil, :kvlist_value, :bytes_value then nil
        when :array_value then list(any.array_value.values)
        else any.public_send(any.value)
        end
      end

      def list(values)
        if values.map(&:value).uniq.one? && SCALARS.include?(values.first.value)
          values.map { |one| value(one) }
        end
      end
    end
  end
end
