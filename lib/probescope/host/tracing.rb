# frozen_string_literal: true

require_relative "bpftrace"
require_relative "clock"
require_relative "error"
require_relative "library"
require_relative "links"
require_relative "participant"
require_relative "program"
require_relative "selection"
require_relative "tracer"

module Probescope
  module Host
    # One run of bpftrace on one process or several, in the helper. Steps: attach; wait for the
    # first flush of each process, which starts its interval; count; wait for the flushes that end
    # the intervals; interrupt bpftrace, which then prints its maps. The state is read from the
    # processes' own memory (semaphores, flush counters) and not from bpftrace's messages, which
    # differ by version.
    #
    # A single process without traced children is traced by `bpftrace -p`. Otherwise bpftrace is
    # given a folder of links to the library files (Links), and switches on every process that maps
    # one of them. That is the case for several processes, for later ones, and for a process whose
    # library was deleted on disk.
    class Tracing
      POLL = 0.02 # seconds between two reads of the processes
      COUNTING = 0.1 # while counting: a read takes some 0.1 ms, and as much again per process
      FOLLOW = 0.2 # seconds between two searches for new children
      BESIDES = 1.0 # seconds for the search for other processes with the same library
      ATTACH_LIMIT = 30.0 # seconds; bpftrace takes 0.4 to 0.8 s
      HIDDEN_LIMIT = 2.0 # seconds with raised semaphores, where the kernel hides bpftrace's wait
      FLUSH_LIMIT = 1.2 # seconds; there is a flush each second
      # Seconds. The library holds a flush back for up to 3 s while other tracers leave
      # (LEAVING_FOR_NS in ext/core/watcher.c). Without that flush, the interval would have no end.
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
      RESTARTS = 5

      # order: Order. tell: called with each message for the command. Raises Error when there is
      # nothing to trace.
      def initialize(order, &tell)
        @order = order
        @tell = tell
        @seconds = order.seconds
        @programs = order.programs.map { |name| Program.all.fetch(name) }
        @probes = @programs.flat_map { |program| Program.probes(program) }.uniq
        @wanted = Library.arguments(@probes)
        @selection = Selection.new(order)
        @users = Library::TRUSTED_USERS unless @selection.single? || order.trust
        targets = @selection.targets
        @notes = @selection.notes
        @alone = @selection.single? && targets.first.on_disk?
        @participants = participants(targets)
        @strangers = [] # children that map a library file without a link
        @passed_by = [] # children that ended at once, or do not serve the probes
        @files = []
        @restarts = 0
        @state = :attaching
        @since = @began = now
        @alone ? count_by_thread : count_by_pid(targets)
        start
      end

      # For the loop that reads them.
      def streams = @tracers.flat_map(&:streams)

      # Reads the available bytes of one of #streams.
      def read(stream)
        tracer = @tracers.find { |one| one.streams.include?(stream) } or return
        @since = now if @state == :ending # bpftrace prints its maps, which may be large
        # The states of the processes are reported before the lines that depend on them.
        look if %i[waiting counting].include?(@state)
        tracer.read(stream) { |line| output(tracer, line) }
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

      # No hook may outlive the command.
      def kill
        @tracers.each(&:kill)
        @tracers.each(&:discard)
        @links&.remove
        @links = nil
      end

      # Called every POLL seconds. Returns true when the run has ended.
      def step
        return finish if @state == :ending && @tracers.all?(&:status) && streams.empty?

        observe
        false
      end

      private

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      def output(tracer, line)
        @tell.call(:output, line) if tracer == @tracers.first
      end

      def alive = @participants.select(&:alive?)

      # Processes that do not serve a probe are left out and named. Raises Error when no process
      # serves it.
      def participants(targets)
        refused = []
        found = targets.filter_map do |target|
          participant(target)
        rescue Error => e
          refused << e
          nil
        end
        raise refused.first if found.empty? && refused.any?

        @notes.concat(refused.map(&:in_one_line))
        found
      end

      # Raises Error for a process that may not be traced.
      def participant(target)
        one = Participant.new(target, @probes, some: @order.some)
        target.library(@wanted, @users).last.close unless @alone
        one
      end

      # With links, the rows of wanted processes are told from others by the process number that
      # bpftrace reports.
      def count_by_pid(targets)
        return if Bpftrace.initial_pids?

        bpftrace = Bpftrace.find
        refuse_threads_for_processes(bpftrace)
        if bpftrace.numbers == :outer
          raise Error.new("bpftrace #{bpftrace} counts processes by their numbers " \
                          "outside of this PID namespace",
                          "trace one process at a time (-p PID), use bpftrace 0.24.2 or later, " \
                          "or run the command on the host")
        end
        own = File.readlink("/proc/self/ns/pid")
        inner = targets.reject { |target| File.readlink("/proc/#{target.pid}/ns/pid") == own }
        return if inner.empty?

        raise Error.new("process #{inner.first.pid} is in a PID namespace below this one, " \
                        "where bpftrace has no number for it",
                        "trace it by itself (-p #{inner.first.pid}), or run the command on the host")
      end

      # With -p, the number need not be the process's, but must be the same in all events. Rows of a
      # flush come from one thread; all other events come from the application's threads.
      def count_by_thread
        unless Bpftrace.initial_pids? || @probes.all? { |name| name.match?(/__stats\z|\Astats__done\z/) }
          refuse_threads_for_processes
        end
      end

      def refuse_threads_for_processes(bpftrace = Bpftrace.find)
        return unless bpftrace.numbers == :thread

        raise Error.new("bpftrace #{bpftrace} takes threads for processes in a PID namespace like this one",
                        "use bpftrace 0.24.2 or later, or run the command on the host; " \
                        "exceptions, hot, calls and alloc work with -p PID")
      end

      def start
        options, library = @alone ? [["-p", @participants.first.pid.to_s], "*"] : [[], linked]
        @tracers = @programs.map { |program| Tracer.new(@order, program, options, library) }
      end

      # Makes one link for each distinct file, through a process that is alive. Once bpftrace is
      # attached, the kernel identifies the library by the file, and not by the process.
      def linked
        @links ||= Links.new
        @links.clear
        [*alive.map(&:target).uniq(&:identity), *@missing].each { |target| link(target) }
        @links.pattern
      end

      def link(target)
        @links.add(target.library(@wanted, @users).last)
      rescue Refused => e
        @notes << e.in_one_line
      end

      def observe
        return see_to_the_end if @state == :ending

        follow
        return everybody_ended if alive.empty? && !(@selection.roots? && @state == :counting)

        look
        return tracer_ended if @tracers.any?(&:status)

        send(@state)
      end

      def look
        look_now unless @state == :counting && @looked && now - @looked < COUNTING
      end

      def look_now
        @looked = now
        Participant.look(alive, @looked).each { |one| tell_states(one) if one.keep }
      end

      def tell_states(one)
        @tell.call(:states, pid: one.pid, states: one.states, in_part: one.in_part,
                            tells_of_cut: one.tells_of_cut?)
      end

      def everybody_ended = interrupt(:target_ended, grace: @alone ? 0.5 : 0)

      # A process whose file a link leads to may have ended before bpftrace opened the link.
      def tracer_ended
        return interrupt(:tracer_ended) if @alone || @state != :attaching || @participants.all?(&:alive?)

        restart
      end

      def restart
        return too_late("bpftrace did not reach every process") if (@restarts += 1) > RESTARTS

        @tracers.each(&:discard)
        start
        @since = now
      end

      def attaching
        return give_up if @asked && now - @asked > FLUSH_LIMIT
        if now - @since > ATTACH_LIMIT
          return too_late("bpftrace did not attach within #{ATTACH_LIMIT.to_i} s")
        end
        return unless attached?
        return wait_for_flushes if @alone

        # Two files with the same identity may still be different files, on two devices.
        deaf = alive.reject(&:raised?).select(&:alive?).map(&:target).uniq { |target| target.file.id }
        deaf -= @missing || []
        return wait_for_flushes if deaf.empty?

        @missing = (@missing || []) + deaf
        restart
      end

      def attached?
        return false unless @alone ? alive.all?(&:raised?) : alive.any?(&:raised?)

        @raised_since ||= now
        @tracers.all? do |tracer|
          tracer.waiting_for_events? || (tracer.hidden? && now - @raised_since > HIDDEN_LIMIT)
        end
      end

      def wait_for_flushes
        @participants.each { |one| one.begin(now) }
        besides
        go(:waiting)
        @tell.call(:attached, seconds: now - @began, pids: @participants.map(&:pid), by_pid: @alone)
        @participants.each { |one| tell_states(one) }
      end

      # Counts the other processes that were switched on.
      def besides
        @others = 0
        return if @alone

        files = @participants.map { |one| one.target.identity }.uniq
        known = @participants.map(&:pid)
        all, = Target.all(seconds: BESIDES)
        @others = all.count { |target| !known.include?(target.pid) && switched_on?(target, files) }
      end

      # Two files with the same identity may be different files.
      def switched_on?(target, files)
        target.library({}, nil).last.close
        files.include?(target.identity) && Participant.new(target, @probes, some: @order.some).raised?
      rescue Error
        false
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
        looking, cpu = @participants.filter_map(&:looking).transpose.map(&:sum)
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
        passed > SETTLE && (passed < 1 - PAUSE || @alone)
      end

      # Adds children that have come since the last search.
      def follow
        return if @alone || (@followed && now - @followed < FOLLOW)

        @followed = now
        known = @participants.map(&:pid) + @strangers + @passed_by
        @selection.newcomers(known).each do |target|
          one = participant(target)
          next unless covered?(target)

          @participants << one
          @tell.call(:joined, pid: target.pid)
          tell_states(@participants.last)
        rescue Error => e
          @passed_by << target.pid
          @notes << e.in_one_line if e.is_a?(Refused) && e.kind == :untrusted
        end
      end

      # A child with another library file than the others would need another bpftrace.
      def covered?(target)
        @files = @participants.map { |one| one.target.identity }.uniq if @files.size < @participants.size
        fits = alive.size < Selection::MOST && (@state == :attaching || @files.include?(target.identity))
        @strangers << target.pid unless fits
        fits
      end

      # Ends without a result: nothing has been counted yet.
      def give_up
        interrupt(:stopped)
        @interrupt_at = nil
        @given_up = true
        @tracers.each(&:kill)
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
        @participants.each(&:absence)
        @interrupt_at = now + grace
        go(:ending)
      end

      def see_to_the_end
        return @tracers.each(&:kill) if @given_up || now - @since > EXIT_LIMIT

        watch_detach if @interrupted
        due = @interrupt_at && now >= @interrupt_at
        return unless due && (!@interrupted || @tracers.any? { |one| deaf?(one) })

        unless @interrupted
          Participant.look(alive, now)
          # bpftrace detaches one probe after the other, so from here on the events of the remaining
          # probes are incomplete.
          @tell.call(:leaving, {})
        end
        @tracers.each { |tracer| tracer.signal(:INT) }
        @interrupted = true
        @interrupt_at = now + INT_AGAIN
      end

      # True when bpftrace still waits for events, as if it had received no signal.
      def deaf?(tracer) = tracer.status.nil? && (tracer.waiting_for_events? || (tracer.hidden? && held?))

      # bpftrace detaches one probe after the other. A flush during that time is in some maps and
      # not in others. It does no harm where the program had ended that process's interval before,
      # which its maps tell (Trace#torn?).
      def watch_detach
        flushed = Participant.look(alive, now)
        @unended = @unended.to_a | flushed.map(&:pid) if flushed.any? && held?
      end

      # Where another tracer listens too, the semaphores stay raised. Then the figures may be torn.
      def held? = alive.any? { |one| one.shared? || one.heard? }

      def too_late(why)
        @error = why
        interrupt(:failed)
      end

      def silence
        @participants.group_by(&:absence).map do |absence, all|
          "nothing is known of process#{"es" unless all.one?} #{all.map(&:pid).join(", ")}: #{absence}"
        end.join("; ")
      end

      def finish
        first = @tracers.first
        first.finish { |line| output(first, line) }
        @links&.remove
        reused
        @tell.call(:ended, reason: @reason || :tracer_ended, error: @error, unended: @unended.to_a,
                           closing: Program.closing(@seconds).to_i, by_pid: @alone,
                           stderr: @tracers.map(&:errors).join, targets: @participants.map(&:to_h),
                           others: @others || 0, strangers: @strangers, notes: @notes,
                           clock: Clock.new.offset, monotonic: Clock.monotonic_offset)
        true
      end

      def reused
        @participants.reject(&:alive?).select { |one| loaded?(one.pid) }.each do |one|
          @notes << "process #{one.pid} ended, and another one got its number: its rows may be of both"
        end
      end

      def loaded?(pid)
        Target.try(pid)
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
