# frozen_string_literal: true

require "open3"

module Support
  # What binutils reads in a library. Its reader is independent, so the specs do not test our reader
  # with itself.
  module Elf
    Note = Struct.new(:provider, :name, :location, :base, :semaphore, :arguments, keyword_init: true)

    module_function

    # Every entry of .note.stapsdt, in file order.
    def stapsdt_notes(library, readelf: "readelf")
      text = tool(readelf, "-n", "-W", library)
      places = /Location: (\h+|0x\h+), Base: (0x\h+), Semaphore: (0x\h+)/
      text.scan(/Provider: (\S+)\s+Name: (\S+)\s+#{places}\s+Arguments: ?(.*)$/).map do |row|
        values = row.first(2) + row[2, 3].map(&:hex) + [row[5].strip]
        Note.new(**Note.members.zip(values).to_h)
      end
    end

    # Virtual address and size of an exported data symbol, or nil.
    def dynamic_symbol(library, name)
      line = tool("readelf", "--dyn-syms", "-W", library).lines.find do |l|
        l.split[7]&.split("@")&.first == name
      end
      return unless line

      _, address, size, type, = line.split
      { address: address.hex, size: Integer(size), type: type }
    end

    def tool(*command)
      out, status = Open3.capture2e(*command)
      raise "#{command.join(" ")}: #{out}" unless status.success?

      out
    end
  end
end
