# frozen_string_literal: true

module Probescope
  module Host
    # Opens a file that a foreign process chose, and nothing but a regular file: a FIFO would hang
    # whoever opens it, and to open a device may do something. So it is looked at first (O_PATH),
    # which opens nothing, and then opened by what was looked at.
    module Opened
      # Ruby adds O_CLOEXEC to what it opens itself.
      O_CLOEXEC = 0o2000000
      LOOK = 0o10000000 | O_CLOEXEC
      READ = File::RDONLY | File::NONBLOCK | File::NOCTTY
      # openat2(2), which has that number on every architecture. Linux 5.6.
      OPENAT2 = 437
      RESOLVE_NO_MAGICLINKS = 0x02
      RESOLVE_NO_SYMLINKS = 0x04
      RESOLVE_IN_ROOT = 0x10
      HOW = [LOOK, 0, RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS | RESOLVE_IN_ROOT].pack("Q3").freeze

      module_function

      # The file of a link in /proc, which the kernel leads to an open file. Returns an IO. Raises
      # SystemCallError.
      def link(path) = reopened(File.open(path, LOOK))

      # The file of that path below the root of a process, where no part of the path is a link.
      # Returns an IO. Raises SystemCallError.
      def beneath(pid, path)
        File.open("/proc/#{pid}/root", LOOK) do |root|
          # A string is not to be frozen, and may hold no zero.
          number = syscall(OPENAT2, root.fileno, path.dup, [HOW].pack("p").unpack1("J"), HOW.bytesize)
          reopened(IO.for_fd(number, "rb"))
        end
      end

      def reopened(looked)
        raise Errno::ENXIO, "no regular file" unless looked.stat.file?

        File.open("/proc/self/fd/#{looked.fileno}", READ)
      ensure
        looked.close
      end
    end
  end
end
