# frozen_string_literal: true

module Probescope
  module Host
    # The files that a process maps, from /proc/PID/maps.
    module Mappings
      # range names the mapping in /proc/PID/map_files; start is where the file's first byte is mapped.
      MappedFile = Struct.new(:pid, :id, :path, :range, :start) do
        def deleted? = path.end_with?(" (deleted)")

        # Opened through map_files, which also reaches files that were deleted or replaced; without the privilege for that,
        # by its path in the process's own root. Yields an IO, or returns nil when neither can be opened.
        def open(&block)
          File.open("/proc/#{pid}/map_files/#{range}", "rb", &block)
        rescue SystemCallError
          begin
            File.open("/proc/#{pid}/root#{path}", "rb", &block) unless deleted?
          rescue SystemCallError
            nil
          end
        end
      end

      LINE = /\A(\h+-\h+) (\S{4}) (\h+) (\S+) (\d+) +(.*)\n\z/mn

      module_function

      # Each executable file once, those first that are named like the library.
      # Raises SystemCallError when the process is gone or not to be read.
      def files(pid)
        mapped = File.binread("/proc/#{pid}/maps").each_line.filter_map { |line| LINE.match(line) }
        mapped.reject! { |line| line[5] == "0" }
        files = mapped.group_by { |line| [line[4], line[5]] }.filter_map do |id, lines|
          first = lines.find { |line| line[3].hex.zero? }
          next unless first && lines.any? { |line| line[2].include?("x") }

          MappedFile.new(pid, id, first[6], first[1], first[1].hex)
        end
        files.partition { |file| File.basename(file.path).include?("probescope") }.flatten(1)
      end
    end
  end
end
