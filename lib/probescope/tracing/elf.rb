# frozen_string_literal: true

require_relative "bounds"

module Probescope
  module Tracing
    # Reads exported symbols and USDT probes from a 64-bit little-endian ELF file. The file is one
    # that a foreign process maps, so its contents are not trusted. Whatever is inconsistent, or
    # larger than a library of ours can be, raises EOFError.
    class Elf
      Section = Struct.new(:type, :offset, :bytes, :link)
      # semaphore: its virtual address, 0 without one.
      Probe = Struct.new(:provider, :name, :arguments, :semaphore)
      SYMTAB = 2
      DYNSYM = 11
      NOTE = 7
      NOTE_HEAD_BYTES = 12
      NOTE_OF_PROBE = 3
      LOAD = 1
      SECTION = "x4 L< x16 Q<Q<L<"
      PROGRAM = "L< x4 Q<Q<"
      SYMBOL_BYTES = 24

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
        if [table, strings].any? { |section| section.bytes > Bounds::ELF_SYMBOL_BYTES }
          raise EOFError, "too many symbols"
        end

        wanted = read(strings.offset, strings.bytes).index("\0#{name}\0".b)
        wanted && address_of(read(table.offset, table.bytes), wanted + 1)
      end

      # A function of the symbol tables. type: FUNCTION, or INDIRECT for one whose code the loader
      # chooses; its address is that of the code that chooses.
      Function = Struct.new(:address, :type)
      FUNCTION = 2
      INDIRECT = 10

      # The Functions of that name, each address once.
      def functions(name)
        return [] unless @valid

        tables = sections.select { |section| [DYNSYM, SYMTAB].include?(section.type) }
        tables.flat_map { |table| functions_in(table, name) }.uniq
      end

      # The difference between real and virtual addresses once the file's first byte is mapped at
      # `start`.
      def bias(start)
        programs = rows(@programs_at, @program_bytes, @program_count, PROGRAM)
        first = programs.find { |type, offset, _| type == LOAD && offset.zero? }
        start - (first ? first[2] : 0)
      end

      # The Probes in the notes, in the format of sys/sdt.h.
      def probes
        return [] unless @valid

        notes = sections.select { |section| section.type == NOTE }
        raise EOFError, "too many notes" if notes.sum(&:bytes) > Bounds::ELF_NOTE_BYTES

        notes.each_with_object([]) { |section, found| add_probes(found, read(section.offset, section.bytes)) }
      end

      private

      def functions_in(table, name)
        strings = sections[table.link] or return []
        wanted = places(parts(strings).reduce("".b, :<<), "#{name}\0".b)
        return [] if wanted.empty?

        found = []
        parts(table).each do |symbols|
          (0...(symbols.bytesize / SYMBOL_BYTES)).each do |i|
            string, info, section, value = symbols.unpack("L<C x S<Q<", offset: i * SYMBOL_BYTES)
            found << Function.new(value, info & 15) if wanted.key?(string) && section != 0
          end
        end
        found.select { |one| [FUNCTION, INDIRECT].include?(one.type) }
      end

      # Yields a section's bytes in parts, each of whole symbols.
      def parts(section)
        raise EOFError, "too many symbols" if section.bytes > Bounds::ELF_TABLE_BYTES
        return enum_for(:parts, section) unless block_given?

        step = Bounds::ELF_BYTES / SYMBOL_BYTES * SYMBOL_BYTES
        (0...section.bytes).step(step) do |at|
          yield read(section.offset + at, [step, section.bytes - at].min)
        end
      end

      # {offset => true} wherever a name ends with this text. A name may be the tail of a longer one.
      def places(strings, text)
        found = {}
        at = -1
        found[at] = true while (at = strings.index(text, at + 1)) && found.size < Bounds::ELF_SAME_NAMES
        raise EOFError, "too many equal names" if at

        found
      end

      def add_probes(found, notes)
        at = 0
        while at + NOTE_HEAD_BYTES <= notes.bytesize
          name, bytes, type = notes.unpack("L<3", offset: at)
          at += NOTE_HEAD_BYTES
          described = at + align(name)
          of_probe = type == NOTE_OF_PROBE && notes.byteslice(at, name) == "stapsdt\0"
          probe(notes.byteslice(described, bytes))&.then { |one| found << one } if of_probe
          raise EOFError, "too many probes" if found.size > Bounds::ELF_PROBES

          at = described + align(bytes)
        end
      end

      # A description is three addresses, the last one the semaphore's, and three strings.
      def probe(description)
        return if description.nil? || description.bytesize < 24

        provider, name, operands, rest = description.byteslice(24..).split("\0", 4)
        Probe.new(provider, name, operands.split.size, description.unpack1("Q<", offset: 16)) if rest
      end

      def align(bytes) = (bytes + 3) / 4 * 4

      def sections
        @sections ||= rows(@sections_at, @section_bytes, @section_count, SECTION)
                      .map { |fields| Section.new(*fields) }
      end

      # The rows of a table, each unpacked with format.
      def rows(offset, bytes, count, format)
        return [] if count.zero?

        possible = count <= Bounds::ELF_ROWS &&
                   bytes.between?(Bounds::ELF_LEAST_ROW_BYTES, Bounds::ELF_ROW_BYTES)
        raise EOFError, "#{count} rows of #{bytes} bytes" unless possible

        data = read(offset, bytes * count)
        Array.new(count) { |i| data.unpack(format, offset: i * bytes) }
      end

      # A name may be the tail of a longer one in the string table, so the symbol is searched by the
      # offset of its name.
      def address_of(table, name)
        (0...(table.bytesize / SYMBOL_BYTES)).each do |i|
          string, section, value = table.unpack("L< x2 S<Q<", offset: i * SYMBOL_BYTES)
          return value if string == name && section != 0
        end
        nil
      end

      def read(offset, size)
        raise EOFError, "#{size} bytes asked for" if size > Bounds::ELF_BYTES || offset + size > 1 << 63

        data = size.zero? ? "".b : @io.pread(size, offset)
        data.bytesize == size ? data : raise(EOFError, "the file is shorter")
      end
    end
  end
end
