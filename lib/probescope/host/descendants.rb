# frozen_string_literal: true

require "set"
require_relative "foreign"

module Probescope
  module Host
    # The processes that descend from others.
    module Descendants
      # Those that are nearest count.
      MOST = 10_000
      # Each thread has children of its own.
      MOST_THREADS = 4096
      # Threads of all of them that are looked at, 20 us each: a user may have many, and the bridge
      # looks twice a second.
      MOST_READ = 10_000

      module_function

      # Their numbers, level by level. Empty where there are none, and where the processes are gone.
      # The user for whose processes fewest threads were looked at comes next, so that nobody's
      # threads hide the children of others.
      def of(*roots)
        found = Set.new
        queues = roots.group_by { |root| Foreign.owner(root) }
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

      # [its children, how many threads were looked at]
      def children(pid)
        threads = Dir.each_child("/proc/#{pid}/task").first(MOST_THREADS)
        [threads.flat_map { |thread| children_of_thread(pid, thread) }, threads.size]
      rescue SystemCallError
        [[], 1]
      end

      # None of a thread that has just ended.
      def children_of_thread(pid, thread)
        File.read("/proc/#{pid}/task/#{thread}/children").split.map(&:to_i)
      rescue SystemCallError
        []
      end
    end
  end
end
