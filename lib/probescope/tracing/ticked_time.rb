# frozen_string_literal: true

module Probescope
  module Tracing
    # The CPU time of a process, exact and by the ticks at which samples are taken: the length of a
    # tick for each tick that found a thread of the process on a CPU. The difference is time that no
    # sample was taken of. Ruby's samples come at ticks of the kernel, which has a clock for each.
    # CPython's come at ticks of the library, which counts both (`ticked_*` in providers/info.yml).
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

        more_than_chance(1 - (ticked.to_f / exact), exact / 1e9 / tick)
      end

      # The same by two results of Info#ticked. nil also where the library does not count.
      def missed_by_library(before, after)
        return unless before && after

        exact, ticked, count = after.zip(before).map { |now, earlier| now - earlier }
        more_than_chance(1 - (ticked.to_f / exact), [count, 1].max) if exact.positive?
      end

      # count: how many ticks met the process.
      def more_than_chance(missed, count)
        missed if missed > [LEAST, DEVIATIONS / Math.sqrt(count)].max
      end
    end
  end
end
