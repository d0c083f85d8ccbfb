# frozen_string_literal: true

require_relative "table"

module Probescope
  module Commands
    # Threads, sorted by the time that they waited for the VM lock.
    class Gvl < Table
      PROGRAM = "gvl.bt"
      USAGE = "gvl -p PID [options]"
      ABOUT = <<~TEXT
        Which threads wait for the VM lock (Ruby's GVL, Python's GIL), and how long? A VM runs one thread at
        a time, Ruby one of each Ractor; a thread that is ready to run waits for the lock. The wait ends when
        the thread runs with the lock, so its time has the wait for a CPU, too. Ruby 3.2 and later reports
        these waits. For Python 3.11 to 3.14 the kernel reports them: then the trace listens to every system
        call, switch and wake-up of the machine, and each call of a function costs about 0.1 us, as in
        `probescope calls`. Waits under 1 us are left out, and so are waits that have not ended when the
        interval ends, and on Ruby 3.2 waits that began before the attach.
        Sorted by TOTAL. If threads wait much, use fewer threads in each process, and more processes.

          SHARE   of the wall time of its process
          THREAD  its number and its name in the kernel (`top -H`)
      TEXT
      EXAMPLES = <<~TEXT
        probescope gvl -p 4711                for 10 seconds
        probescope gvl -p 4711 --json | jq '.rows | map(.total_ns) | add'
      TEXT
      MIN = "the wall time"
      # Printed before the interval begins.
      BY_KERNEL = "the kernel reports waits for the GIL: of threads that make calls of traced functions; " \
                  "the trace listens to every system call, switch and wake-up of the machine"

      class Report < Tracing::Report
        def rows = sorted(result.rows_apart.map { |row| waits(row) }, :total_ns, :waits)

        def share(row) = row[:wall_share]

        private

        def live? = true

        def waits(row)
          thread, pid = row.names
          total = row.number("total_ns")
          count = row.number("waits")
          {thread_id: thread, name: thread_name(pid, thread), waits: count, total_ns: total,
           mean_ns: ratio(total, count)&.round, max_ns: row.number("max_ns"),
           wall_share: ratio(total, result.wall_ns([pid]))}
        end

        # nil when the thread has ended, or when the process is in another PID namespace.
        def thread_name(pid, thread)
          File.read("/proc/#{pid}/task/#{thread}/comm").chomp
        rescue SystemCallError
          nil
        end
      end

      private

      def heard(answer)
        super
        warn("probescope: #{BY_KERNEL}") if answer[:is] == "attached" && by_kernel?
      end

      def check(result)
        super
        return unless by_kernel? && result.map("gil").values.none? { |address| address.to_i.positive? }

        raise Tracing::Error.new("this CPython does not tell where its GIL is: it is built without one, " \
                                 "or is later than 3.14",
                                 "probescope waits shows all waits")
      end
    end
  end
end
