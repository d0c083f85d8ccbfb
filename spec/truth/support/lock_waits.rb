# frozen_string_literal: true

module Truth
  # How long the threads of a process waited for something other than a CPU, from the kernel's
  # figures: the elapsed time, minus the time on a CPU, minus the time in which the thread was ready
  # to run without one. Threads that compute and never block wait only for the VM lock. The time
  # between the lock and the CPU may belong to either.
  class LockWaits
    # Part of the elapsed time. A thread that is on a CPU for less also waits for other things.
    BUSY = 0.02
    EVERY = 0.02 # s

    def initialize(pid)
      @pid = pid
      @notes = []
      @over = false
      @thread = Thread.new { look until @over }
    end

    def finish
      @over = true
      @thread.join
    end

    # Returns {thread id => Range of the share of waits that have ended}. from, to: ns of
    # CLOCK_MONOTONIC.
    def busy(from, to)
      notes = @notes.select { |time, _| time.between?(from, to) }.sort_by(&:first)
      return {} if notes.size < 2

      first, last = notes.values_at(0, -1)
      wall = (last[0] - first[0]).to_f
      last[1].filter_map do |thread, (cpu, delay)|
        before = first[1][thread] || next
        cpu, delay = [cpu - before[0], delay - before[1]].map { |ns| ns / wall }
        [thread, (1 - cpu - delay - (since_it_ran(notes, thread) / wall))..(1 - cpu)] if cpu > BUSY
      end.to_h
    end

    private

    # Returns the ns from the last note before which the thread ran until the end. The exact moment
    # between two notes is unknown.
    def since_it_ran(notes, thread)
      last = notes.last[1][thread].first
      ran = notes.rindex { |_, threads| threads[thread]&.first != last }
      notes.last[0] - (ran ? notes[ran][0] : notes.first[0])
    end

    def look
      threads = Dir["/proc/#{@pid}/task/*/schedstat"].map do |path|
        [path[%r{task/(\d+)}, 1].to_i, times(path)]
      end
      @notes << [Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond), threads.select(&:last).to_h]
      sleep EVERY
    end

    # Returns nil for a thread that has ended.
    def times(path)
      File.read(path).split.first(2).map(&:to_i)
    rescue SystemCallError
      nil
    end
  end
end
