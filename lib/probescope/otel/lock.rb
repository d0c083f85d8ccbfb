# frozen_string_literal: true

require_relative "../tracing/links"

module Probescope
  module Otel
    # Marks the processes that have a bridge, by locks on single bytes of one file: byte N is for
    # process N. There is one file for all, because a bridge cannot keep a file open for each
    # process. The kernel releases the locks when the bridge ends.
    class Lock
      PATH = File.join(Tracing::Links::BASE, "bridges")
      # fcntl(2) with a lock on an open file description, and the layout of struct flock.
      F_OFD_SETLK = 37
      WRITE, NONE = 1, 2
      FLOCK = "s2 x4 q2 l x4"

      # Raises SystemCallError.
      def initialize
        @file = File.open(PATH, File::RDWR | File::CREAT | File::NOFOLLOW, 0o600)
      end

      # Returns false when another bridge has the lock.
      def take(pid)
        set(WRITE, pid)
        true
      rescue Errno::EAGAIN, Errno::EACCES
        false
      end

      def release(pid) = set(NONE, pid)

      private

      def set(type, pid) = @file.fcntl(F_OFD_SETLK, [type, IO::SEEK_SET, pid, 1, 0].pack(FLOCK))
    end
  end
end
