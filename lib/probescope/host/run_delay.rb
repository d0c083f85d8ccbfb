# frozen_string_literal: true

module Probescope
  module Host
    # How long threads of a process could run and had no CPU, as the kernel counts it since their
    # beginning.
    module RunDelay
      module_function

      # {thread id => ns}, of so many threads at most. Empty where the process is gone, and where
      # the kernel does not count it (CONFIG_SCHED_INFO).
      def of(pid, most)
        threads = Dir.each_child("/proc/#{pid}/task").first(most)
        threads.to_h do |thread|
          [thread.to_i, File.read("/proc/#{pid}/task/#{thread}/schedstat").split[1].to_i]
        end
      rescue SystemCallError
        {}
      end

      # ns between two of them. What a thread waited that ended in between is unknown.
      def between(before, after) = after.sum { |thread, ns| ns - before.fetch(thread, 0) }
    end
  end
end
