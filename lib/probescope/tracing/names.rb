# frozen_string_literal: true

module Probescope
  module Tracing
    # The names of a process: in the title that it gave itself, as servers do ("puma: cluster worker
    # 0: 4711 [shop]"), and in the kernel. nil when the process has ended.
    module Names
      # The kernel keeps this many bytes of a name.
      COMM_BYTES = 15
      MOST_BYTES = 4096
      # The first word of a title. An ordinary command line is no title: its first argument contains
      # no space and ends with no colon.
      TITLE = %r{\A([^\0 :/]+)(?: |: )}

      module_function

      # The comparison of `--comm`.
      def match?(pid, name) = comm?(pid, name) || title(pid) == name.b

      def comm?(pid, name) = comm(pid) == name.b.byteslice(0, COMM_BYTES)

      # The title if there is one, otherwise the kernel's name.
      def best(pid) = (title(pid) || comm(pid))&.force_encoding(Encoding::UTF_8)&.scrub

      def comm(pid) = read(pid, "comm")&.chomp

      def title(pid) = read(pid, "cmdline")&.slice(TITLE, 1)

      # Reads a limited number of bytes, because a process may declare all of its memory as its
      # command line.
      def read(pid, file)
        File.binread("/proc/#{pid}/#{file}", MOST_BYTES)
      rescue SystemCallError
        nil
      end
    end
  end
end
