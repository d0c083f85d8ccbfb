# frozen_string_literal: true

require "etc"

module Probescope
  module Tracing
    # bpftrace's buffers are locked memory, one for each CPU. The limit of a process is 8 MiB by default,
    # and only CAP_SYS_RESOURCE, which some containers have not, may raise it. Above the limit, bpftrace
    # does not start.
    module LockedMemory
      # Every limit that systems have has room for so many pages on each CPU.
      LEAST = 64

      module_function

      # The pages of a buffer, a power of two up to `wanted`, for which there is room.
      def pages(wanted)
        limit = raised
        return wanted if limit == Process::RLIM_INFINITY

        cpus = Dir["/sys/devices/system/cpu/cpu[0-9]*"].size.clamp(1, nil)
        # The kernel adds a page to each buffer.
        most = (limit / Etc.sysconf(Etc::SC_PAGESIZE) / cpus) - 1
        wanted /= 2 while wanted > [most, LEAST].max
        wanted
      end

      # The limit, in bytes, which children inherit.
      def raised
        Process.setrlimit(:MEMLOCK, Process::RLIM_INFINITY)
        Process::RLIM_INFINITY
      rescue Errno::EPERM
        Process.getrlimit(:MEMLOCK).first
      end
    end
  end
end
