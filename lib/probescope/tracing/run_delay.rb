# frozen_string_literal: true

module Probescope
  module Tracing
    # How long the threads of a process waited for a CPU while they could run. The kernel counts
    # this from the start of each thread.
    module RunDelay
      module_function

      # {thread id => ns}, for the first `most` threads. Empty where the process has ended, and
      # where the kernel does not count it (CONFIG_SCHED_INFO).
      def of(pid, most)
        threads = Dir.each_child("/proc/#{pid}/task").first(most)
        threads.to_h { |thread| [thread.to_i, ns("#{pid}/task/#{thread}")] }
      rescue SystemCallError
        {}
      end

      # The seconds of one thread: of the first one of a process (its pid), or of the caller
      # ("thread-self"). 0 where .of returns nothing.
      def seconds(thread)
        ns(thread) / 1e9
      rescue SystemCallError
        0.0
      end

      # thread: a folder of /proc. Raises SystemCallError.
      def ns(thread) = File.read("/proc/#{thread}/schedstat").split[1].to_i

      # The ns between two results of .of. The wait of a thread that ended in between is not known.
      def between(before, after) = after.sum { |thread, ns| ns - before.fetch(thread, 0) }
    end
  end
end
