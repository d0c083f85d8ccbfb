# frozen_string_literal: true

require_relative "../host/links"

module Probescope
  module Otel
    # Says that a process has a bridge. It goes with whoever holds it.
    class Lock
      # nil when another bridge holds it.
      def self.take(pid)
        path = File.join(Host::Links::BASE, "bridge-#{pid}")
        file = File.open(path, File::RDWR | File::CREAT | File::NOFOLLOW, 0o600)
        new(path, file) if file.flock(File::LOCK_EX | File::LOCK_NB)
      end

      def initialize(path, file)
        @path = path
        @file = file
      end

      def release
        File.unlink(@path)
        @file.close
      rescue Errno::ENOENT
        @file.close
      end
    end
  end
end
