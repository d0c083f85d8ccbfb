# frozen_string_literal: true

require_relative "error"

module Probescope
  module Tracing
    # Child processes without the library. Reading a process's mappings is costly for the process:
    # the kernel formats a page of text or more while it holds the lock under which the process maps
    # memory. But a process may load the library at any time. So a process is read again at once
    # when it has executed another program, and otherwise after pauses that double up to MOST
    # seconds. Reading a refused process may take a second, so its pauses are longer.
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

      # Forgets all other processes.
      def keep(pids) = @known.select! { |pid, _| pids.include?(pid) }

      # Yields when it is time to read the process, and returns the block's value; returns nil
      # otherwise. When the block finds a process with the library, the process is forgotten. When
      # the block raises Error, the process counts as refused, and the Error is raised again.
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

      # The process's start time, and the path of its executable, which is not opened. nil when the
      # process has ended.
      def identity(pid)
        [File.read("/proc/#{pid}/stat").rpartition(") ").last.split[19], File.readlink("/proc/#{pid}/exe")]
      rescue SystemCallError
        nil
      end
    end
  end
end
