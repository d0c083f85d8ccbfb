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
      # Seconds between two ticks. Distributions set CONFIG_HZ to 100 and more. The lowest is
      # assumed: of fewer ticks, chance explains a larger part.
      TICK = 0.01

      module_function

      # [ns by the ticks, exact ns] since the process began; nil where the process has ended.
      def of(pid)
        [TICKED, EXACT].map { |kind| Process.clock_gettime((~pid << 3) | kind, :nanosecond) }
      rescue SystemCallError
        nil
      end

      # The part of the CPU time between two results of .of that no tick met. nil if that part is
      # below LEAST, or if chance alone may explain it.
      def missed(before, after)
        ticked, exact = after.zip(before).map { |now, earlier| now - earlier }
        return unless exact.positive?

        missed = 1 - (ticked.to_f / exact)
        missed if missed > [LEAST, DEVIATIONS / Math.sqrt(exact / 1e9 / TICK)].max
      end
    end
  end
end
