# frozen_string_literal: true

require_relative "error"

module Probescope
  module Host
    # Children without the library. What a process maps is a page or more of text, which the kernel
    # writes while it holds the lock under which the process maps memory. So one that was looked at
    # is looked at again when it runs another program, and else after pauses that double, up to MOST
    # seconds: it may load the library at any time. One that was refused may cost a second to look
    # at, and has longer pauses.
    class Strangers
      FIRST = 0.2
      MOST = 5.0
      FIRST_REFUSED = 5.0
      MOST_REFUSED = 300.0

      Known = Struct.new(:identity, :pause, :again_at)

      def initialize(&now)
        @now = now || -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) }
        @known = {}
      end

      # Forgets all but these.
      def keep(pids) = @known.select! { |pid, _| pids.include?(pid) }

      # The block's value where it is time to look at the process, nil otherwise. Where the block
      # finds something, the process is forgotten. A block that raises Error refuses the process:
      # #look raises it, too.
      def look(pid)
        identity = identity(pid) or return
        known = @known[pid]
        known = nil if known && known.identity != identity
        return if known && @now.call < known.again_at

        found = yield
        found ? @known.delete(pid) : remember(pid, identity, known, FIRST, MOST)
        found
      rescue Error
        remember(pid, identity, known, FIRST_REFUSED, MOST_REFUSED)
        raise
      end

      private

      def remember(pid, identity, known, first, most)
        pause = known ? (known.pause * 2).clamp(first, most) : first
        @known[pid] = Known.new(identity, pause, @now.call + pause)
      end

      # Start time, and path of the file that it runs; the file itself may be one that nobody can
      # look at. nil when it has ended.
      def identity(pid)
        [File.read("/proc/#{pid}/stat").rpartition(") ").last.split[19], File.readlink("/proc/#{pid}/exe")]
      rescue SystemCallError
        nil
      end
    end
  end
end
