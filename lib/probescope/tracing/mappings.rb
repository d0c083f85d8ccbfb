# frozen_string_literal: true

require_relative "bounds"
require_relative "opened"
require_relative "refused"

module Probescope
  module Tracing
    # The files that a process maps, from /proc/PID/maps.
    module Mappings
      # id: device and inode. range: the name of the mapping in /proc/PID/map_files. start: the
      # address at which the file's first byte is mapped.
      MappedFile = Struct.new(:pid, :id, :path, :range, :start) do
        def deleted? = path.end_with?(" (deleted)".b)

        # Opens the file through map_files, which also reaches files that were deleted or replaced.
        # Without the privilege for map_files, opens it by its path in the process's own root, if
        # that is still the same file. Yields an IO. Raises SystemCallError.
        def open
          io = opened
          yield io
        ensure
          io&.close
        end

        private

        def opened
          Opened.link("/proc/#{pid}/map_files/#{range}")
        rescue Errno::EPERM, Errno::EACCES, Errno::ENOENT
          raise if deleted?

          io = Opened.beneath(pid, path)
          return io if io.stat.ino.to_s == id.last

          io.close
          raise Errno::ESTALE
        end
      end

      LINE = /^([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) (\S+) ([1-9]\d*) +(.*)$/n
      CHUNK = 1 << 18
      # The program of a valgrind tool: /usr/libexec/valgrind/memcheck-amd64-linux
      VALGRIND = %r{/valgrind/[^/]+-linux\z}n

      module_function

      # Each executable file once; files whose name contains "probescope" come first. Raises
      # SystemCallError when the process has ended or may not be read, and Refused.
      def files(pid) = File.open("/proc/#{pid}/maps", "rb") { |io| in_text(io, pid) }

      # io: the text of /proc/PID/maps.
      def in_text(io, pid)
        found = {} # by id: [the MappedFile, whether it is mapped executable]
        each_line(io) do |from, to, rights, offset, device, inode, path|
          id = [device, inode]
          next unless found.key?(id) || found.size < Bounds::MAPS_FILES

          one = (found[id] ||= [nil, false])
          one[0] ||= MappedFile.new(pid, id, path, "#{from}-#{to}", from.hex) if offset.hex.zero?
          one[1] ||= rights.include?("x")
        end
        files = found.each_value.filter_map { |file, executable| file if executable }
        files.partition { |file| file.path.rpartition("/").last.include?("probescope") }.flatten(1)
      end

      # Who runs the process's code of the file with this id: :kernel or :valgrind. nil: the process maps
      # no code of it.
      def runner(pid, id)
        code = valgrind = false
        File.open("/proc/#{pid}/maps", "rb") do |io|
          each_line(io) do |_, _, rights, _, device, inode, path|
            code ||= rights.include?("x") && id == [device, inode]
            valgrind ||= path.match?(VALGRIND)
          end
        end
        return unless code

        valgrind ? :valgrind : :kernel
      end

      # Yields the fields of each line that names a file.
      def each_line(io, &block)
        rest = "".b
        bytes = 0
        while (text = io.read(CHUNK))
          bytes += text.bytesize
          if bytes > Bounds::MAPS_BYTES
            raise Refused.malformed("what it maps is more than #{Bounds::MAPS_BYTES >> 20} MiB of text")
          end

          whole, _, rest = (rest + text).rpartition("\n")
          whole.scan(LINE, &block)
        end
      end
    end
  end
end
