# frozen_string_literal: true

require "opentelemetry/sdk"
require "opentelemetry/proto/resource/v1/resource_pb"
require_relative "../host/text"

module Probescope
  module Otel
    # The Resource of a traced process: what the kernel says of it, and what it says of itself. A
    # process may be hostile: what it claims about things that the kernel knows has names of its
    # own, and no claim is longer than a backend takes.
    module Resource
      NAME = "service.name"
      # What the kernel knows, or the bridge.
      KNOWN = /\A(process\.|host\.|container\.id\z|k8s\.pod\.uid\z|probescope\.)/
      CLAIMED = "probescope.claimed."
      # Of claims: attributes, characters of a key and of a value, elements of a list.
      MOST = 128
      KEY = 255
      VALUE = 4096
      LIST = 128
      SCALARS = %i[string_value bool_value int_value double_value].freeze
      # Field 1 of the message ProcessContext, a Resource.
      RESOURCE = (1 << 3) | 2
      # Bytes of a number at most.
      VARINT = 10

      module_function

      # message: Resources.of, as JSON. service_name: what the user wants it to be, or nil.
      # defaults: what the user says of all processes. Nothing is made up: no instance id.
      def of(message, service_name, defaults = {})
        seen = message[:attributes].transform_keys(&:to_s).transform_values { |value| clean(value) }
        own, about = claims(message).partition { |key, _| !key.match?(KNOWN) }.map(&:to_h)
        name = service_name || own[NAME] || "unknown_service:#{message[:executable]}"
        other = about.reject { |key, value| seen[key] == value }.transform_keys { |key| CLAIMED + key }
        OpenTelemetry::SDK::Resources::Resource.create(defaults.merge(own, other, seen, NAME => clean(name)))
      end

      # {key => value} of what the process says of itself; what it publishes while it runs goes
      # before what it was started with.
      def claims(message)
        started = {NAME => message[:service_name]}.compact
        said = (message[:claims] || {}).transform_keys(&:to_s)
        said = started.merge(said, started, published(message[:published])).first(MOST)
        said.to_h { |key, value| [clean(key)[0, KEY], clean(value)] }.except("")
      end

      def clean(value)
        case value
        when String then Host::Text.clean(value)[0, VALUE]
        when Array then value.first(LIST).map { |one| clean(one) }
        else value
        end
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
        size = bytes.each_byte.first(VARINT).take_while { |byte| byte > 0x7f }.size + 1
        raise RangeError, "a number of more than 64 bits" if size > VARINT

        [bytes.byteslice(0, size).each_byte.with_index.sum { |byte, i| (byte & 0x7f) << (7 * i) },
         bytes.byteslice(size..) || ""]
      end

      # Scalars, and lists of scalars of one kind, which is all that an attribute can be.
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
