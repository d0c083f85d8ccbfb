# frozen_string_literal: true

module Probescope
  # The part of protobuf that a process context needs (OTEP 4719): ProcessContext {1: Resource {1:
  # KeyValue {1: key, 2: AnyValue}}}.
  module Message
    VARINT, EIGHT_BYTES, BYTES = 0, 1, 2
    # The limit of attributes in a process context.
    MOST_ATTRIBUTES = 128
    # Bytes of the longest varint.
    LONGEST = 10

    Malformed = Class.new(StandardError)

    module_function

    # The field `resource` of a ProcessContext. attributes: {name => scalar, or Array of scalars}.
    def resource(attributes) = field(1, attributes.map { |name, value| field(1, pair(name, value)) }.join)

    def varint(number)
      number &= (1 << 64) - 1
      bytes = []
      while number > 0x7f
        bytes << ((number & 0x7f) | 0x80)
        number >>= 7
      end
      [*bytes, number].pack("C*")
    end

    # A field whose value is a message or a string.
    def field(number, bytes) = varint((number << 3) | BYTES) + varint(bytes.bytesize) + bytes.b

    def pair(name, value) = field(1, name.to_s) + field(2, any(value))

    def any(value)
      case value
      when true, false then varint(2 << 3) + varint(value ? 1 : 0)
      when Integer then varint(3 << 3) + varint(value)
      when Float then varint((4 << 3) | EIGHT_BYTES) + [value].pack("E")
      when Array then field(5, value.map { |one| field(1, any(one)) }.join)
      else field(1, value.to_s)
      end
    end

    # The attributes of the Resource in an encoded ProcessContext. OpenTelemetry allows scalars, and
    # arrays of scalars of one kind; other values are left out. Raises Malformed for bytes that are
    # no message.
    def attributes(bytes)
      resource = fields(bytes).find { |number, value| number == 1 && value.is_a?(String) }&.last or return {}
      pairs = fields(resource).select { |number, value| number == 1 && value.is_a?(String) }.map(&:last)
      pairs.first(MOST_ATTRIBUTES).filter_map { |text| attribute(text) }.to_h
    end

    def attribute(text)
      found = fields(text).to_h
      name, value = found.values_at(1, 2)
      return unless name.is_a?(String) && !name.empty? && value.is_a?(String)

      value = scalar_or_array(value)
      [utf8(name), value] unless value.nil?
    end

    def scalar_or_array(text)
      number, value = fields(text).last
      return scalar(number, value) unless number == 5 && value.is_a?(String)

      all = fields(value).map do |field, one|
        last = fields(one).last if field == 1 && one.is_a?(String)
        scalar(*(last || [nil, nil]))
      end
      all if all.map { |one| kind(one) }.uniq.size == 1 && !all.first.nil?
    end

    # true and false are values of one kind.
    def kind(value) = [true, false].include?(value) ? :boolean : value.class

    def scalar(number, value)
      case [number, value]
      in [1, String] then utf8(value)
      in [2, Integer] then value != 0
      in [3, Integer] then [value].pack("Q").unpack1("q")
      in [4, Float] then value
      else nil
      end
    end

    # The fields of a message as [[number, value], ...]. A value is an Integer, a Float (fields of
    # eight bytes) or a String.
    def fields(bytes)
      at = 0
      found = []
      while at < bytes.bytesize
        tag, at = varint_at(bytes, at)
        value, at = value_at(bytes, at, tag & 7)
        found << [tag >> 3, value]
      end
      found
    end

    def value_at(bytes, at, type)
      case type
      when VARINT then varint_at(bytes, at)
      when EIGHT_BYTES then [bytes.unpack1("E", offset: within(bytes, at, 8)), at + 8]
      when BYTES
        size, at = varint_at(bytes, at)
        [bytes.byteslice(within(bytes, at, size), size), at + size]
      else raise Malformed, "a field of type #{type}"
      end
    end

    # Returns [value, the position after it].
    def varint_at(bytes, at)
      value = 0
      LONGEST.times do |i|
        byte = bytes.getbyte(at + i) or break
        value |= (byte & 0x7f) << (7 * i)
        return [value & ((1 << 64) - 1), at + i + 1] if byte < 0x80
      end
      raise Malformed, "a number without an end"
    end

    def within(bytes, at, size)
      raise Malformed, "#{size} bytes of #{bytes.bytesize - at}" if at + size > bytes.bytesize

      at
    end

    def utf8(bytes) = bytes.dup.force_encoding(Encoding::UTF_8).scrub
  end
end
