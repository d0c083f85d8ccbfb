# frozen_string_literal: true

module Truth
  # How long the threads of a process waited for something else than a CPU, as the kernel counts it:
  # what passed, less the time on a CPU and the time in which the thread could run and had none.
  # Threads that compute and never block wait for the VM lock alone. What passes between the lock
  # and a CPU belongs to either.
  class LockWaits
    # Of the time that passes: a thread that is on a CPU for less has other things to wait for.
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

    # {thread id => the Range in which the share of those waits lies that are over at the end}.
    # from, to: ns of CLOCK_MONOTONIC.
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

    # ns from the last note before which it ran until the end. Nobody knows when between two notes
    # it stopped.
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

    # nil of a thread that has ended.
    def times(path)
      File.read(path).split.first(2).map(&:to_i)
    rescue SystemCallError
      nil
    end
  end
end
