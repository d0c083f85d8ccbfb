# frozen_string_literal: true

module Probescope
  module Host
    # As much of an ELF file as it takes to find an exported symbol: 64-bit, little endian. The files are those that some
    # process maps, so nothing in them is believed: sizes are bounded, and whatever does not fit is "no such symbol".
    class Elf
      Section = Struct.new(:type, :offset, :bytes, :link)
      DYNSYM = 11
      LOAD = 1
      SYMBOL_BYTES = 24
      MAX_BYTES = 64 << 20

      # io: an open file, read with #pread.
      def initialize(io)
        @io = io
        head = read(0, 64)
        @valid = head.start_with?("\x7FELF\x02\x01".b)
        return unless @valid

        @programs_at, @sections_at, @program_bytes, @program_count, @section_bytes, @section_count =
          head.unpack("x32 Q<Q< x6 S<S<S<S<")
      end

      # Virtual address of a defined dynamic symbol, or nil.
      def symbol(name)
        return unless @valid

        table = sections.find { |section| section.type == DYNSYM }
        strings = table && sections[table.link]
        return unless strings

        names = read(strings.offset, strings.bytes)
        wanted = names.index("\0#{name}\0".b)
        wanted && address_of(read(table.offset, table.bytes), wanted + 1)
      end

      # What has to be added to a virtual address once the file's first bytes are mapped at `start`.
      def bias(start)
        programs = read(@programs_at, @program_bytes * @program_count)
        first = Array.new(@program_count) { |i| programs.byteslice(i * @program_bytes, @program_bytes).unpack("L< x4 Q<Q<") }
                     .find { |type, offset, _| type == LOAD && offset.zero? }
        start - (first ? first[2] : 0)
      end

      private

      def sections
        @sections ||= begin
          table = read(@sections_at, @section_bytes * @section_count)
          Array.new(@section_count) do |i|
            type, offset, bytes, link = table.byteslice(i * @section_bytes, @section_bytes).unpack("x4 L< x16 Q<Q<L<")
            Section.new(type, offset, bytes, link)
          end
        end
      end

      # A name may be the tail of a longer one, so the table is searched for its offset.
      def address_of(table, name)
        (0...(table.bytesize / SYMBOL_BYTES)).each do |i|
          string, section, value = table.byteslice(i * SYMBOL_BYTES, SYMBOL_BYTES).unpack("L< x2 S<Q<")
          return value if string == name && section != 0
        end
        nil
      end

      def read(offset, size)
        raise EOFError, "#{size} bytes asked for" if size > MAX_BYTES

        size.zero? ? "".b : @io.pread(size, offset)
      end
    end
  end
end
