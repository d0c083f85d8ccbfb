# frozen_string_literal: true

module Probescope
  module Host
    # The processes that descend from one.
    module Descendants
      module_function

      # Their numbers: each child, and after it its own. Empty where there are none, and where the process is gone.
      def of(pid) = children(pid).flat_map { |child| [child, *of(child)] }

      # Each thread has children of its own.
      def children(pid)
        Dir.glob("/proc/#{pid}/task/*/children").flat_map { |path| File.read(path).split.map(&:to_i) }
      rescue SystemCallError
        []
      end
    end
  end
end
