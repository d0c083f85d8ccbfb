# frozen_string_literal: true

module Probescope
  module Tracing
    # The CPU time of a process by two clocks of the kernel. One is exact. The other adds the length
    # of a tick for each tick that found a thread of the process on a CPU. Ruby's samples come at
    # such ticks, so the difference is time in which no sample can be taken.
    module TickedTime
      # What the kernel calls CPUCLOCK_PROF and CPUCLOCK_SCHED, the lowest bits of a clock's id.
      TICKED = 0
      EXACT = 2
      # By chance alone, more than this number of standard deviations is too rare to count.
      DEVIATIONS = 3
      # Less is within the accuracy of the other figures.
      LEAST = 0.05
      # Seconds between two ticks: 0.004 with a CONFIG_HZ of 250. The resolution that the kernel
      # reports for its coarse clocks is the length of its tick (posix_get_coarse_res in
      # kernel/time/posix-timers.c). sysconf(_SC_CLK_TCK) is 100 on every kernel.
      TICK = Process.clock_getres(Process::CLOCK_MONOTONIC_COARSE)

      module_function

      # [ns by the ticks, exact ns] since the process began; nil where the process has ended.
      def of(pid)
        [TICKED, EXACT].map { |kind| Process.clock_gettime((~pid << 3) | kind, :nanosecond) }
      rescue SystemCallError
        nil
      end

      # The part of the CPU time between two results of .of that no tick met. nil if that part is
      # below LEAST, or if chance alone may explain it, which explains more of fewer ticks.
      def missed(before, after, tick: TICK)
        ticked, exact = after.zip(before).map { |now, earlier| now - earlier }
        return unless exact.positive?

        missed = 1 - (ticked.to_f / exact)
        missed if missed > [LEAST, DEVIATIONS / Math.sqrt(exact / 1e9 / tick)].max
      end
    end
  end
end
