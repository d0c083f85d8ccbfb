# frozen_string_literal: true

module Probescope
  module Host
    # What a process is called: by the title that it gave itself, as servers do ("puma: cluster
    # worker 0: 4711 [shop]"), and by the kernel. Nil where it is gone.
    module Names
      # The kernel keeps so much of a name.
      COMM_BYTES = 15
      MOST_BYTES = 4096
      # The first word of a title. What a process was started with is no title: that has no space,
      # and no colon at its end.
      TITLE = %r{\A([^\0 :/]+)(?: |: )}

      module_function

      # What `--comm` compares.
      def match?(pid, name) = comm?(pid, name) || title(pid) == name.b

      def comm?(pid, name) = comm(pid) == name.b.byteslice(0, COMM_BYTES)

      # The one that says more.
      def best(pid) = (title(pid) || comm(pid))&.force_encoding(Encoding::UTF_8)&.scrub

      def comm(pid) = read(pid, "comm")&.chomp

      def title(pid) = read(pid, "cmdline")&.slice(TITLE, 1)

      # A process may say that its command line is all of its memory.
      def read(pid, file)
        File.binread("/proc/#{pid}/#{file}", MOST_BYTES)
      rescue SystemCallError
        nil
      end
    end
  end
end
