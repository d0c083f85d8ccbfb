# frozen_string_literal: true

require_relative "bpftrace"
require_relative "clock"
require_relative "error"
require_relative "event"
require_relative "kernel"
require_relative "member"
require_relative "order"
require_relative "probed_process"
require_relative "program"
require_relative "session"

module Probescope
  module Tracing
    # What a command asks of the helper: a Session for one interval. Steps: attach; wait for the
    # first flush of each process, which starts its interval; count; wait for the flushes that end
    # the intervals; interrupt bpftrace, which then prints its maps.
    class Measurement
      POLL = 0.02 # seconds between two reads of the processes
      COUNTING = 0.1 # while counting: a read takes some 0.1 ms, and as much again per process
      FOLLOW = 0.2 # seconds between two searches for new children
      BESIDES = 1.0 # seconds for the search for other processes with the same library
      MAPPING = 10.0 # seconds for the search for processes that map the file of a uprobe
      ATTACH_LIMIT = 30.0 # seconds; bpftrace takes 0.4 to 0.8 s
      # Seconds, with tracepoints: bpftrace 0.17 reads the kernel's list of events for each of them.
      LONG_ATTACH_LIMIT = 90.0
      # Seconds after which the command is told that it takes longer.
      SOON = 2.0
      # A tracepoint of the program that follows all threads of a process (offcpu.bt). The fields of its
      # tracepoints have the numbers of threads in the initial PID namespace.
      NEW_THREAD = "task:task_newtask"
      # Tracepoints that report a thread of a process while another process is on the CPU: it gets the
      # CPU, or is woken.
      ELSEWHERE = %w[sched:sched_switch sched:sched_waking].freeze
      FLUSH_LIMIT = 1.2 # seconds; there is a flush each second
      # Seconds. The library holds a flush back for up to 3 s while other tracers leave
      # (LEAVING_FOR_NS in ext/core/agent/watcher.c). Without that flush, the interval would have no end.
      HELD_LIMIT = 4.5
      FIRST_FLUSH_LIMIT = 5.0
      # Hooks of ten thousand functions take longer on a busy machine. The limit is as long as the
      # requested interval, but at most this.
      LONGEST_FIRST_FLUSH = 60.0
      INT_AGAIN = 3.0 # seconds; an INT may arrive just before bpftrace handles it
      EXIT_LIMIT = 20.0 # seconds; the kernel takes 70 ms and more for each probe
      # Seconds. The counter of flushes moves just before the last event of a flush fires.
      SETTLE = 0.02
      # Seconds. bpftrace is interrupted in a pause of this length between two flushes, where there
      # is one.
      PAUSE = 0.3
      # The most restarts of bpftrace until it reaches every process.
      RESTARTS = 10

      # order: Order. tell: called with each message for the command. Raises Error when there is
      # nothing to trace.
      def initialize(order, &tell)
        @order = order
        @tell = tell
        @seconds = order.seconds
        @event = Event.of(order.event) if order.event
        choose(order.programs)
        @strangers = [] # children that map a library file without a link
        @restarts = 0
        @state = :attaching
        @since = @began = now
        check_numbers
        @programs[0] = @session.program_of_event(@programs.first) if @event
        @session.start(@programs)
      end

      # For the loop that reads them.
      def streams = @session.streams

      # Reads the available bytes of one of #streams.
      def read(stream)
        bpftrace = @session.bpftraces.find { |one| one.streams.include?(stream) } or return
        @since = now if @state == :ending # bpftrace prints its maps, which may be large
        # The states of the processes are reported before the lines that depend on them.
        look if %i[waiting counting].include?(@state)
        bpftrace.read(stream) { |line| output(bpftrace, line) }
      end

      # Ends early: at the next flushes, or at once on the second call.
      def stop
        observe # the interval may have begun since the last look
        again = @asked
        @asked = now
        case @state
        when :attaching, :waiting then give_up if again || alive.none?(&:raised?)
        when :counting then close(:stopped)
        when :closing then interrupt(:stopped)
        end
      end

      def kill = @session.discard

      # Called every POLL seconds. Returns true when the run has ended.
      def step
        return finish if @state == :ending && @session.ended?

        observe
        false
      end

      private

      # Chooses processes. If none of them serves these programs, the kernel may report what their
      # runtime does not.
      def choose(names)
        @chosen = names
        @programs = names.map { |name| Program.all.fetch(name) }
        @probes = @programs.flat_map { |program| Program.probes(program) }.uniq
        @tracepoints = @programs.flat_map { |program| Program.tracepoints(program) }.uniq
        Kernel.new.tracepoints(@tracepoints)
        @event&.exist!(Kernel.new)
        check_namespace
        @session = Session.new(@order, @probes, threads: @tracepoints.any?, waits: all_threads?,
                                                elsewhere: (@tracepoints & ELSEWHERE).any?, event: @event)
        @session.choose
        @mapping = @session.mapping(MAPPING)
        check_lines
      rescue Member::Unserved => e
        others = Program.by_kernel(names, e.runtime) or raise
        choose(others)
      end

      # Raises Misused where the program would find no line at all.
      def check_lines
        runtimes = @chosen.filter_map { |name| Program::LINES[name] }.flatten
        return if runtimes.empty? || members.any? { |one| runtimes.include?(one.snapshot[:runtime]) }

        names, pids = members.map { |one| [one.snapshot[:runtime], one.pid] }.transpose
        raise Misused.new("the lines of #{names.uniq.map(&:capitalize).join(" and ")} are not known to the " \
                          "kernel (process#{"es" unless pids.one?} #{pids.join(", ")})",
                          "the command without --by line: rows by function")
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      def output(bpftrace, line)
        @tell.call(:output, line) if bpftrace == @session.bpftraces.first
      end

      def members = @session.members
      def alive = @session.alive
      def alone? = @session.alone?

      # With links, the rows of members are told from others by the process number that bpftrace
      # reports.
      def check_numbers
        alone? ? check_threads : refuse_threads_for_processes
        @session.check_numbers("trace one process at a time (-p PID), use bpftrace 0.24.2 or later, " \
                               "or run the command on the host")
      end

      # With -p, the number need not be the process's, but must be the same in all events. Rows of a
      # flush come from one thread; all other events come from the application's threads.
      def check_threads
        rows = /__stats\z|\Astats__done\z|\Astack__/
        refuse_threads_for_processes unless @probes.all? { |name| name.match?(rows) }
      end

      def refuse_threads_for_processes
        return if Bpftrace.initial_pids?

        bpftrace = Bpftrace.find
        return unless bpftrace.numbers == :thread

        raise Error.new("bpftrace #{bpftrace} takes threads for processes in a PID namespace like this one",
                        "use bpftrace 0.24.2 or later, or run the command on the host; " \
                        "exceptions, hot, lines, record, calls and alloc work with -p PID")
      end

      def observe
        return see_to_the_end if @state == :ending

        follow
        return everybody_ended if alive.empty? && !(@session.children_may_come? && @state == :counting)

        look
        return bpftrace_ended if @session.bpftraces.any?(&:status)

        send(@state)
      end

      def look
        look_now unless @state == :counting && @looked && now - @looked < COUNTING
      end

      def look_now
        @looked = now
        Member.look(alive, @looked).each { |one| tell_states(one) if one.keep }
      end

      def tell_states(one)
        @tell.call(:states, pid: one.pid, states: one.states, in_part: one.in_part,
                            tells_of_cut: one.tells_of_cut?)
      end

      def everybody_ended = interrupt(:target_ended, grace: alone? ? 0.5 : 0)

      # A process whose file a link leads to may have ended before bpftrace opened the link.
      def bpftrace_ended
        return interrupt(:tracer_ended) if alone? || @state != :attaching || members.all?(&:alive?)

        too_late("bpftrace did not reach every process") unless restart
      end

      # Returns false when that was done too often already.
      def restart
        return false if (@restarts += 1) > RESTARTS

        @session.start(@programs)
        @since = now
        true
      end

      def attaching
        return give_up if @asked && now - @asked > FLUSH_LIMIT

        limit = @tracepoints.any? ? LONG_ATTACH_LIMIT : ATTACH_LIMIT
        return too_late("bpftrace did not attach within #{limit.to_i} s") if now - @since > limit

        tell_of_attaching
        return unless @session.attached?

        wait_for_flushes unless @session.link_apart? && restart
      end

      # Once, where it takes long.
      def tell_of_attaching
        return if @told_of_attaching || @tracepoints.empty? || now - @began < SOON

        @told_of_attaching = true
        @tell.call(:attaching, seconds: now - @began)
      end

      # Whether the program follows all threads of the processes.
      def all_threads? = @tracepoints.include?(NEW_THREAD)

      # The kernel's numbers of threads, bpftrace's and those in /proc have to be the same.
      def check_namespace
        return if Bpftrace.initial_pids? || !all_threads?

        raise Error.new("the kernel's events have the numbers of threads in the initial PID namespace, " \
                        "and this is another one",
                        "run the command on the host")
      end

      def wait_for_flushes
        members.each { |one| one.begin(now) }
        @others = @session.others(BESIDES)
        go(:waiting)
        @tell.call(:attached, seconds: now - @began, pids: members.map(&:pid), by_pid: alone?,
                              programs: @chosen, mapping: @mapping,
                              entry: members.flat_map { |one| one.entry.to_a }.uniq)
        members.each { |one| tell_states(one) }
      end

      def waiting
        return give_up if @asked && now - @asked > FLUSH_LIMIT

        waited_for = alive
        # All of them may have ended since the last read. bpftrace still has their counts.
        return everybody_ended if waited_for.empty?
        return give_up if waited_for.all?(&:refuses?)

        flushed = waited_for.count(&:flushed?)
        return nobody_flushed if flushed.zero?
        return unless flushed == waited_for.size || now - @since > FIRST_FLUSH_LIMIT

        go(:counting)
        @tell.call(:counting, {})
      end

      def nobody_flushed
        too_late(silence) if now - @since > @seconds.clamp(FIRST_FLUSH_LIMIT, LONGEST_FIRST_FLUSH)
      end

      def counting
        return close(:stopped) if @asked
        return close(:too_dear) if too_dear?

        close(:time) if now - @since > @seconds - Program::EARLY
      end

      # Whether looking took more of the processes' CPU time than the order allows, as of their last
      # flushes.
      def too_dear?
        limit = @order.max_overhead or return false
        looking, cpu = members.filter_map(&:looking).transpose.map(&:sum)
        cpu&.positive? && looking > limit * cpu
      end

      # Interrupts bpftrace once every process that flushes has ended its interval. Detaching takes
      # time, so it begins when no flush is due, if there is such a time.
      def closing
        waited = now - @since
        talking = alive.select(&:flushed?)
        done = talking.all? { |one| one.flushed_at > @since } &&
               talking.all? { |one| quiet?(one) || waited > FLUSH_LIMIT }
        interrupt(@reason) if done || waited > HELD_LIMIT
      end

      def quiet?(one)
        passed = now - one.flushed_at
        passed > SETTLE && (passed < 1 - PAUSE || alone?)
      end

      # Adds children that have come since the last search.
      def follow
        return if alone? || (@followed && now - @followed < FOLLOW)

        @followed = now
        before = members.size
        @session.arrivals(except: @strangers) { |one| fits?(one) }
        members.drop(before).each do |one|
          @tell.call(:joined, pid: one.pid)
          tell_states(one)
        end
      end

      # A child with another library file than the others would need another bpftrace.
      def fits?(one)
        fits = alive.size < Order::MOST && (@state == :attaching || @session.covered?(one))
        @strangers << one.pid unless fits
        fits
      end

      # Ends without a result: nothing has been counted yet.
      def give_up
        interrupt(:stopped)
        @interrupt_at = nil
        @given_up = true
        @session.kill
      end

      # A flush since the last read happened before this call, and does not end the interval.
      def close(reason)
        look_now
        @reason = reason
        go(:closing)
      end

      # Makes bpftrace print its maps and exit. grace: with -p, bpftrace notices by itself that the
      # process has ended.
      def interrupt(reason, grace: 0)
        return if @state == :ending

        @reason = reason
        members.each(&:absence)
        @interrupt_at = now + grace
        go(:ending)
      end

      def see_to_the_end
        return @session.kill if @given_up || now - @since > EXIT_LIMIT

        watch_detach if @session.interrupted?
        return unless @interrupt_at && now >= @interrupt_at

        unless @session.interrupted?
          Member.look(alive, now)
          # bpftrace detaches one probe after the other, so from here on the events of the remaining
          # probes are incomplete.
          @tell.call(:leaving, {})
        end
        @session.interrupt(INT_AGAIN)
      end

      # bpftrace detaches one probe after the other. A flush during that time is in some maps and
      # not in others. It does no harm where the program had ended that process's interval before,
      # which its maps tell (Result#torn?).
      def watch_detach
        flushed = Member.look(alive, now)
        @unended = @unended.to_a | flushed.map(&:pid) if flushed.any? && @session.held?
      end

      def too_late(why)
        @error = why
        interrupt(:failed)
      end

      def silence
        members.group_by(&:absence).map do |absence, all|
          "nothing is known of process#{"es" unless all.one?} #{all.map(&:pid).join(", ")}: #{absence}"
        end.join("; ")
      end

      def finish
        first = @session.bpftraces.first
        first&.finish { |line| output(first, line) }
        @session.discard
        reused
        @tell.call(:ended, reason: @reason || :tracer_ended, error: @error, unended: @unended.to_a,
                           closing: Program.closing(@seconds).to_i, by_pid: alone?,
                           stderr: @session.errors, targets: members.map(&:to_h),
                           others: @others || 0, mapping: @mapping, strangers: @strangers,
                           notes: @session.notes,
                           clock: Clock.new.offset, monotonic: Clock.monotonic_offset)
        true
      end

      def reused
        members.reject(&:alive?).select { |one| loaded?(one.pid) }.each do |one|
          @session.notes << "process #{one.pid} ended, and another one got its number: " \
                            "its rows may be of both"
        end
      end

      def loaded?(pid)
        ProbedProcess.try(pid)
      rescue Refused
        false
      end

      def go(state)
        @state = state
        @since = now
      end
    end
  end
end
