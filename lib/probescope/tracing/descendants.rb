# frozen_string_literal: true

require "set"
require_relative "identity"

module Probescope
  module Tracing
    # Finds the descendants of processes.
    module Descendants
      # The most descendants that are returned, the nearest ones first.
      MOST = 10_000
      # The most threads of a process that are read. Each thread has children of its own.
      MOST_THREADS = 4096
      # The most threads that are read in one call, over all processes. A thread takes 20 us, a user
      # may have many threads, and the bridge calls this twice a second.
      MOST_READ = 10_000

      module_function

      # The pids of the descendants, level by level; empty where there are none, and where the
      # processes have ended. The next process is always one of the user with the fewest threads
      # read so far, so that a user with many threads cannot hide the children of other users.
      def of(*roots)
        found = Set.new
        queues = roots.group_by { |root| Identity.owner(root) }
        read = queues.transform_values { 0 }
        until queues.empty? || found.size >= MOST || read.values.sum >= MOST_READ
          user, queue = queues.min_by { |one, _| read[one] }
          children, threads = children(queue.shift)
          read[user] += threads
          queue.concat(children.select { |child| found.add?(child) } - roots)
          queues.delete(user) if queue.empty?
        end
        found.first(MOST)
      end

      # Returns [its children, how many threads were read].
      def children(pid)
        threads = Dir.each_child("/proc/#{pid}/task").first(MOST_THREADS)
        [threads.flat_map { |thread| children_of_thread(pid, thread) }, threads.size]
      rescue SystemCallError
        [[], 1]
      end

      # A thread that has just ended has no children.
      def children_of_thread(pid, thread)
        File.read("/proc/#{pid}/task/#{thread}/children").split.map(&:to_i)
      rescue SystemCallError
        []
      end
    end
  end
end
