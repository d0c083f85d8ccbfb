# frozen_string_literal: true

require_relative "syscalls"
require_relative "table"
require_relative "../tracing/kernel_lines"
require_relative "../tracing/syscalls"

module Probescope
  module Commands
    # Waits of threads, sorted by the time that they were blocked.
    class Waits < Table
      PROGRAM = "waits.bt"
      BY_REQUEST = true
      USAGE = "waits -p PID [options]"
      ABOUT = <<~TEXT
        What do threads wait for, at which line, and whose line ended the wait? A wait counts in the interval
        in which it ends, with its whole time. Sorted by BLOCKED. A column without any known value is left
        out.

        Ruby 3.2 to 3.4 report their waits. A wait begins when a thread gives up the VM lock, such as in
        Mutex#synchronize, Queue#pop, IO#read or sleep, and ends when the thread runs with the lock again.
        Not seen: C code that blocks and keeps the VM lock, waits that began before the attach, Ractors other
        than the main one, and waits of single fibers: under a fiber scheduler their thread waits.

        For Python and Ruby 3.1 the kernel reports waits: each system call in which a thread left its CPU.
        Then the trace listens to every system call, switch and wake-up of the machine, and each call of a
        function costs about 0.1 us, as in `probescope calls`. Before the interval, a line says which of the
        two it is.

          SHARE      of the blocked time of all rows
          BLOCKED    time until the thread could go on
          VM LOCK    time from then until it ran with the VM lock, with the wait for a CPU; `probescope gvl`
                     shows those of 1 us and more by thread
          MEAN       mean of both together
          WAITS FOR  the method that waited. A method that only computes gave the VM lock to another thread
                     when its time was over; so did (Ruby code). (unnamed): the names were not found before
                     the next flush. By the kernel: the kind of system call, or GIL, which is a wait of
                     its own
          AT         nearest line of the application's own code among the innermost 16 frames, otherwise the
                     nearest line of Ruby code. By the kernel: line of the innermost function of the
                     application, or (definition) where only the line is known at which it is defined
          REQUEST    with --by-request: method and route, as in `hot`. The waits of a request whose route is
                     known at its end only are in the interval in which it ends. By the kernel: method
                     and path, in which ids are *. - where there is no request, or none that is known, as
                     for (unnamed)
          ENDED BY   where the thread was that ended most of the time blocked: it unlocked the Mutex, or filled
                     the Queue (Ruby 3.3 and later). By the kernel: for locks, file locks (flock) and the GIL
      TEXT
      EXAMPLES = <<~TEXT
        probescope waits -p 4711                for 10 seconds
        probescope waits -p 4711 -d 60 --min 1  a minute, what has 1 % of the blocked time and more
        probescope waits -p 4711 --by-request   for which requests
        probescope waits -p 4711 --json | jq '.rows[0].holders'
      TEXT
      MIN = "the blocked time"
      # Printed before the interval begins.
      BY_PROCESS = "the process reports waits: those in which a thread gives up the VM lock"
      BY_KERNEL = "the kernel reports waits: the kind of system call, and not which lock, file or socket; " \
                  "who ended it for locks, flock and the GIL only; of threads that make calls of " \
                  "traced functions"
      REACH = "listens to every system call, switch and wake-up of the machine: all processes pay for it"

      CURRENT = Tracing::KernelLines::CURRENT

      class Report < Tracing::Report
        def more = {known_by: "process", reach: []}

        def not_covered
          route = "not covered: waits of requests whose route was not known when the interval ended"
          [*super, *(route if @by_request && more[:known_by] == "process")]
        end

        def rows
          same = result.rows_apart.group_by { |row| [request(row), row.names.first(4)] }
          found = same.map { |(request, names), rows| {**request, **line(names, rows)} }
          all = sum(found, :blocked_ns)
          sorted(found, :blocked_ns, :waits).each { |row| row[:blocked_share] = ratio(row[:blocked_ns], all) }
        end

        def share(row) = row[:blocked_share]

        private

        def line(names, rows)
          waits, blocked, vm_lock = %w[waits blocked_ns vm_lock_ns].map { |map| total(rows, map) }
          what, file, line, function = names.map { |name| known(name) }
          {what: what, call: nil, file: file, line: line, line_is: (CURRENT if line), function: function,
           waits: waits, blocked_ns: blocked, vm_lock_ns: vm_lock,
           mean_ns: ratio(blocked + vm_lock, waits)&.round,
           longest_ns: rows.filter_map { |row| row.number("longest_ns") }.max, holders: holders(rows)}
        end

        def total(rows, map) = rows.sum { |row| row.number(map) || 0 }

        # The holder's number is one of its process, so processes are merged by the holder's place.
        def holders(rows)
          told = rows.group_by { |row| holder(row) }.reject { |place, _| place.nil? }
          sorted(told.map do |(function, file, line), same|
            {function: known(function), file: known(file), line: known(line),
             line_is: (CURRENT if known(line)), waits: total(same, "waits"),
             blocked_ns: total(same, "blocked_ns")}
          end, :blocked_ns, :waits)
        end

        def holder(row)
          pid, number = row.names[4, 2]
          places[[pid, Tracing::Result.request(number)]]
        end

        # {[pid, number] => [function, file, line]}
        def places
          @places ||= result.values("holder").to_h do |pid, number, *place|
            [[pid, Tracing::Result.request(number)], place]
          end
        end
      end

      # What the kernel reports (waits_kernel.bt). A key of the program's maps has the process, the
      # function's site, its instruction, what it waited for, site and instruction of the thread that
      # ended the wait, and with --by-request the number of the request.
      class KernelReport < Report
        # The program's number for a wait for CPython's GIL. Others are one more than a system call's.
        GIL = 60_002
        # What a kind of system call waits for (Tracing::Syscalls::KINDS).
        KINDS = {"lock" => "lock", "timer" => "sleep", "child" => "child", "socket" => "socket",
                 "ready" => "event loop or socket", "file" => "file", "file_lock" => "file lock"}.freeze
        # Ruby 3.1 waits for most things in the same two calls, on whichever thread has its timer.
        RUBY = {**KINDS, "lock" => "lock, queue, sleep or VM lock",
                         "ready" => "lock, queue, sleep, socket or child"}.freeze
        # Calls of the kind "file" whose file may be a pipe or a socket.
        ANY_FILE = %w[read write readv writev].freeze
        # The fields of a wait that tell its row from others; the first two with --by-request.
        NAMES = %i[method route what call file line line_is function].freeze

        def more = {known_by: "kernel", reach: [REACH]}

        def rows
          same = waits.group_by { |wait| wait.values_at(*NAMES) }
          found = same.values.map { |all| merged(all) }
          all = sum(found, :blocked_ns)
          sorted(found, :blocked_ns, :waits).each { |row| row[:blocked_share] = ratio(row[:blocked_ns], all) }
        end

        def not_covered
          [*super, "not covered: waits that began before the trace, and of threads that made no traced call",
           "not in the share for looking: the kernel's part, for each system call and each switch"]
        end

        private

        def live? = true

        # A Hash for each entry of the program's maps.
        def waits
          result.map("waits").map do |key, count|
            pid, site, at, what, waker, waker_at, request = Tracing::Result.numbers(key)
            by = waker.positive? ? place_of(pid, waker, waker_at) : {}
            figures = {waits: Tracing::Result.number(count), blocked_ns: figure("blocked_ns", key),
                       longest_ns: figure("longest_ns", key)}
            names = {**request_of(request), **place_of(pid, site, at), **waited_for(pid, what)}
            {**names, **figures, by: by}
          end
        end

        def figure(map, key) = Tracing::Result.number(result.map(map)[key]) || 0

        def merged(waits)
          count, blocked = sum(waits, :waits), sum(waits, :blocked_ns)
          names = waits.first.slice(*NAMES)
          longest = waits.map { |wait| wait[:longest_ns] }.max
          names.merge(waits: count, blocked_ns: blocked, vm_lock_ns: nil, longest_ns: longest,
                      mean_ns: ratio(blocked, count)&.round, holders: holders_of(waits))
        end

        def holders_of(waits)
          told = waits.select { |wait| wait[:by][:function] }.group_by { |wait| wait[:by] }
          sorted(told.map do |place, same|
            {**place, waits: sum(same, :waits), blocked_ns: sum(same, :blocked_ns)}
          end, :blocked_ns, :waits)
        end

        def waited_for(pid, number)
          return {what: "GIL", call: "futex"} if number == GIL

          call = Syscalls.name_of(number - 1)
          kind = Tracing::Syscalls::KINDS[call]
          kinds = runtime(pid) == "ruby" ? RUBY : KINDS
          {what: ANY_FILE.include?(call) ? "file, pipe or socket" : kinds.fetch(kind, call), call: call}
        end

        # With -p, bpftrace may have another number for the process.
        def runtime(pid)
          members = result.members
          (members.find { |member| member[:pid] == pid } || members.first || {})[:runtime]
        end

        # {function:, file:, line:, line_is:} of a function that was at this instruction.
        def place_of(pid, site, instruction)
          function, file, defined = names[[pid, site]]
          function = known(function) || (UNKNOWN if site.positive?)
          {function: function, file: known(file), **lines.place(pid, instruction, defined)}
        end

        def lines = @lines ||= Tracing::KernelLines.new(result)

        # {[pid, site] => [function, file, line of the definition]}
        def names
          @names ||= Hash.new([nil, nil, nil]).merge!(
            result.map("row").to_h { |key, names| [Tracing::Result.numbers(key), names.first(3)] }
          )
        end
      end

      private

      def heard(answer)
        super
        return unless answer[:is] == "attached"

        warn("probescope: #{by_kernel? ? "#{BY_KERNEL}; #{REACH}" : BY_PROCESS}")
      end

      def program_arguments = [*super, Syscalls.file_lock]

      def report_of(part)
        (by_kernel? ? KernelReport : Report).new(part, definition, by_request: @by_request)
      end
    end
  end
end
