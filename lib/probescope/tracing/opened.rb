# frozen_string_literal: true

module Probescope
  module Tracing
    # Opens a file that a foreign process chose, but only a regular file: opening a FIFO blocks, and
    # opening a device may have side effects. So the path is first opened with O_PATH, which does
    # not open the file itself. When the file is regular, it is opened through that descriptor.
    module Opened
      # Ruby adds O_CLOEXEC when it opens a file itself, but not in a syscall.
      O_CLOEXEC = 0o2000000
      LOOK = 0o10000000 | O_CLOEXEC
      READ = File::RDONLY | File::NONBLOCK | File::NOCTTY
      # openat2(2), since Linux 5.6. Its number is the same on every architecture.
      OPENAT2 = 437
      RESOLVE_NO_MAGICLINKS = 0x02
      RESOLVE_NO_SYMLINKS = 0x04
      RESOLVE_IN_ROOT = 0x10
      HOW = [LOOK, 0, RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS | RESOLVE_IN_ROOT].pack("Q3").freeze
      HOW_THROUGH_LINKS = [LOOK, 0, RESOLVE_NO_MAGICLINKS | RESOLVE_IN_ROOT].pack("Q3").freeze

      module_function

      # Opens the file behind a link in /proc, which leads to an open file. Returns an IO. Raises
      # SystemCallError.
      def link(path) = reopened(File.open(path, LOOK))

      # Opens the file at that path below the root of a process. No part of the path may be a link.
      # Returns an IO. Raises SystemCallError.
      def beneath(pid, path)
        File.open("/proc/#{pid}/root", LOOK) do |root|
          # dup, because syscall takes no frozen String. HOW is passed by address, because a String
          # argument may contain no zero byte.
          number = syscall(OPENAT2, root.fileno, path.dup, [HOW].pack("p").unpack1("J"), HOW.bytesize)
          reopened(IO.for_fd(number, "rb"))
        end
      end

      # [Device, inode] of the regular file at that path below the root of a process, also through
      # links. nil where there is none. The file itself is not opened.
      def identity(pid, path)
        File.open("/proc/#{pid}/root", LOOK) do |root|
          number = syscall(OPENAT2, root.fileno, path.dup, [HOW_THROUGH_LINKS].pack("p").unpack1("J"),
                           HOW_THROUGH_LINKS.bytesize)
          stat = IO.for_fd(number, "rb").then { |io| io.stat.tap { io.close } }
          [stat.dev, stat.ino] if stat.file?
        end
      rescue SystemCallError
        nil
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
