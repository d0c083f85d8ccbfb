# frozen_string_literal: true

require_relative "../host/links"

module Probescope
  module Otel
    # Says which processes have a bridge: by a lock on the byte of that number in one file, because
    # there may be more processes than files can be open. It goes with whoever holds it.
    class Lock
      PATH = File.join(Host::Links::BASE, "bridges")
      # fcntl(2) on an open file, and struct flock.
      F_OFD_SETLK = 37
      WRITE, NONE = 1, 2
      FLOCK = "s2 x4 q2 l x4"

      # Raises SystemCallError.
      def initialize
        @file = File.open(PATH, File::RDWR | File::CREAT | File::NOFOLLOW, 0o600)
      end

      # False when another bridge has it.
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
