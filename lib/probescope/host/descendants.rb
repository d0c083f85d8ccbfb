# frozen_string_literal: true

require "set"

module Probescope
  module Host
    # The processes that descend from one.
    module Descendants
      # Those that are nearest count.
      MOST = 10_000
      # Each thread has children of its own.
      MOST_THREADS = 4096

      module_function

      # Their numbers, level by level. Empty where there are none, and where the process is gone.
      def of(pid)
        found = Set.new
        queue = [pid]
        while (one = queue.shift) && found.size < MOST
          queue.concat(children(one).select { |child| found.add?(child) })
        end
        found.first(MOST)
      end

      def children(pid)
        Dir.each_child("/proc/#{pid}/task").first(MOST_THREADS).flat_map do |thread|
          File.read("/proc/#{pid}/task/#{thread}/children").split.map(&:to_i)
        end
      rescue SystemCallError
        []
      end
    end
  end
end
