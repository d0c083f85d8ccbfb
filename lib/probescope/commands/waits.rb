# frozen_string_literal: true

require_relative "table"

module Probescope
  module Commands
    # Waits of threads, sorted by the time that they were blocked.
    class Waits < Table
      PROGRAM = "waits.bt"
      USAGE = "waits -p PID [options]"
      ABOUT = <<~TEXT
        What do threads wait for, at which line, and whose line ended the wait? A wait begins when a thread
        gives up the VM lock, such as in Mutex#synchronize, Queue#pop, IO#read or sleep, and ends when the
        thread runs with the lock again. It counts in the interval in which it ends, with its whole time.
        Not seen: C code that blocks and keeps the VM lock, waits that began before the attach, Ractors
        other than the main one, and waits of single fibers: under a fiber scheduler their thread waits.
        Ruby 3.2 to 3.4 report waits, Python does not.
        Sorted by BLOCKED. A column without any known value is left out.

          SHARE      of the blocked time of all rows
          BLOCKED    time until the thread could go on
          VM LOCK    time from then until it ran with the VM lock, with the wait for a CPU; `probescope gvl`
                     shows those of 1 us and more by thread
          MEAN       mean of both together
          WAITS FOR  the method that waited. A method that only computes gave the VM lock to another thread
                     when its time was over; so did (Ruby code). (unnamed): the names were not found before
                     the next flush.
          AT         nearest line of the application's own code among the innermost 16 frames, otherwise the
                     nearest line of Ruby code
          ENDED BY   where the thread was that ended most of the time blocked: it unlocked the Mutex, or filled
                     the Queue (Ruby 3.3 and later)
      TEXT
      EXAMPLES = <<~TEXT
        probescope waits -p 4711                for 10 seconds
        probescope waits -p 4711 -d 60 --min 1  a minute, what has 1 % of the blocked time and more
        probescope waits -p 4711 --json | jq '.rows[0].holders'
      TEXT
      MIN = "the blocked time"

      class Report < Tracing::Report
        def rows
          same = result.rows_apart.group_by { |row| row.names.first(4) }
          found = same.map { |names, rows| line(names, rows) }
          all = sum(found, :blocked_ns)
          sorted(found, :blocked_ns, :waits).each { |row| row[:blocked_share] = ratio(row[:blocked_ns], all) }
        end

        def share(row) = row[:blocked_share]

        private

        def line(names, rows)
          waits, blocked, vm_lock = %w[waits blocked_ns vm_lock_ns].map { |map| total(rows, map) }
          what, file, line, function = names.map { |name| known(name) }
          {what: what, file: file, line: line, function: function, waits: waits, blocked_ns: blocked,
           vm_lock_ns: vm_lock, mean_ns: ratio(blocked + vm_lock, waits)&.round,
           longest_ns: rows.filter_map { |row| row.number("longest_ns") }.max, holders: holders(rows)}
        end

        def total(rows, map) = rows.sum { |row| row.number(map) || 0 }

        # The holder's number is one of its process, so processes are merged by the holder's place.
        def holders(rows)
          told = rows.group_by { |row| holder(row) }.reject { |place, _| place.nil? }
          sorted(told.map do |(function, file, line), same|
            {function: known(function), file: known(file), line: known(line), waits: total(same, "waits"),
             blocked_ns: total(same, "blocked_ns")}
          end, :blocked_ns, :waits)
        end

        def holder(row)
          pid, number = row.names.last(2)
          places[[pid, Tracing::Result.request(number)]]
        end

        # {[pid, number] => [function, file, line]}
        def places
          @places ||= result.values("holder").to_h do |pid, number, *place|
            [[pid, Tracing::Result.request(number)], place]
          end
        end
      end
    end
  end
end
