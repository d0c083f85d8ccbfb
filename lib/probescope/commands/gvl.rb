# frozen_string_literal: true

require_relative "traced"

module Probescope
  module Commands
    # Threads by the time that they waited for the VM lock.
    class Gvl < Traced
      PROGRAM = "gvl.bt"
      USAGE = "gvl -p PID [options]"
      ABOUT = <<~TEXT
        Which threads wait for the VM lock (the GVL), and how long? Ruby runs one thread at a time; a thread that could run and
        may not yet, waits. Ruby tells of it from 3.2 on, Python does not. Waits under 1 us are left out, and so are those under way at
        the interval's end. Sorted by TOTAL. Much waiting means: fewer threads in each process, and more processes.

          SHARE   of the wall time of its process
          THREAD  its number and its name as the kernel knows them (`top -H`)
      TEXT
      EXAMPLES = <<~TEXT
        probescope gvl -p 4711                for 10 seconds
        probescope gvl -p 4711 --json | jq '.rows | map(.total_ns) | add'
      TEXT
      MIN = "the wall time"
      NOTHING = "no thread waited for the VM lock"
      HEADINGS = [">SHARE", ">TOTAL", ">WAITS", ">MEAN", ">MAX", ">THREAD", "NAME"].freeze

      # A wait is told when it is over.
      NOT_COVERED = "not covered: waits that were under way when the interval ended"

      private

      def rows(trace)
        sorted(trace.rows_apart.map { |row| waits(row, trace) }, :total_ns, :waits)
      end

      def waits(row, trace)
        thread, pid = row.names
        total = row.number("total_ns")
        count = row.number("waits")
        share = ratio(total, trace.wall_ns([pid]))
        {thread_id: thread, name: thread_name(pid, thread), waits: count, total_ns: total, mean_ns: ratio(total, count)&.round,
         max_ns: row.number("max_ns"), wall_share: share, share: share}
      end

      # nil when it has ended, or when the process counts its threads in a namespace of its own.
      def thread_name(pid, thread)
        File.read("/proc/#{pid}/task/#{thread}/comm").chomp
      rescue SystemCallError
        nil
      end

      def cells(row)
        [Host::Figure.share(row[:wall_share]), Host::Figure.time(row[:total_ns]), Host::Figure.count(row[:waits]),
         Host::Figure.time(row[:mean_ns]), Host::Figure.time(row[:max_ns]), row[:thread_id].to_s, row[:name] || "-"]
      end
    end
  end
end
