# frozen_string_literal: true

module Probescope
  module Profile
    # The parts of protobuf's wire format that pprof needs: varints, and fields with a length.
    # https://protobuf.dev/programming-guides/encoding/
    module Protobuf
      VARINT = 0
      FIXED64 = 1
      BYTES = 2
      FIXED32 = 5

      # A malformed message.
      class Malformed < StandardError; end

      module_function

      # A number of 64 bits. Negative numbers are stored as two's complement.
      def varint(number)
        number &= 0xffff_ffff_ffff_ffff
        return number.chr if number < 0x80

        bytes = []
        while number > 0x7f
          bytes << ((number & 0x7f) | 0x80)
          number >>= 7
        end
        bytes << number
        bytes.pack("C*")
      end

      # A field with a number; nothing for 0, which is the default.
      def number(field, value) = value.zero? ? "" : varint(field << 3) + varint(value)

      # A field with bytes: a text, a message or packed numbers.
      def bytes(field, value) = varint((field << 3) | BYTES) + varint(value.bytesize) + value.b

      # Reads messages.
      class Reader
        def initialize(bytes)
          @bytes = bytes
          @at = 0
        end

        # Yields the number of each field and its value: an Integer, or the bytes of a field with a
        # length. Raises Malformed.
        def each
          while @at < @bytes.bytesize
            tag = varint
            yield tag >> 3, value(tag & 7)
          end
        end

        # The numbers of a repeated field. value: its packed bytes, or one number. Raises Malformed where
        # they are more than most.
        def self.numbers(value, most)
          value.is_a?(Integer) ? [value] : new(value).numbers(most)
        end

        def numbers(most)
          found = []
          while @at < @bytes.bytesize
            raise Malformed, "it has more than #{most} numbers in one place" if found.size == most

            found << varint
          end
          found
        end

        # As a signed number of 64 bits.
        def self.signed(number) = number >= 1 << 63 ? number - (1 << 64) : number

        private

        def value(wire)
          case wire
          when VARINT then varint
          when BYTES then take(varint)
          when FIXED64 then take(8)
          when FIXED32 then take(4)
          else raise Malformed, "a field of wire type #{wire}"
          end
        end

        def varint
          number = shift = 0
          loop do
            byte = @bytes.getbyte(@at) or raise Malformed, "it ends within a number"
            @at += 1
            number |= (byte & 0x7f) << shift
            return number & 0xffff_ffff_ffff_ffff if byte < 0x80

            shift += 7
            raise Malformed, "a number of more than 64 bits" if shift > 63
          end
        end

        def take(size)
          raise Malformed, "it ends within a field" if size > @bytes.bytesize - @at

          @at += size
          @bytes.byteslice(@at - size, size)
        end
      end
    end
  end
end
