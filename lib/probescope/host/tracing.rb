# frozen_string_literal: true

require_relative "error"
require_relative "program"

module Probescope
  module Host
    # One run of bpftrace on one process, in the helper. Steps: attach, wait for the first flush (it starts the interval),
    # count, wait for the flush that ends it, interrupt bpftrace, which then prints its maps. What happens is known from
    # the process's own memory (semaphores, flush counter), not from bpftrace's messages, which differ by version.
    class Tracing
      POLL = 0.02 # seconds between two looks at the process
      ATTACH_LIMIT = 30.0 # bpftrace takes 0.4 to 0.8 s
      FLUSH_LIMIT = 1.2 # flushes come each second
      FIRST_FLUSH_LIMIT = 5.0
      INT_AGAIN = 3.0 # an INT may fall into the moment before bpftrace is ready for one
      EXIT_LIMIT = 20.0 # the kernel takes 70 ms and more for each probe
      # Flushes drift by some milliseconds: one that comes this much before the time is up ends the interval.
      EARLY = 0.25
      # The counter moves just before the last event of a flush fires.
      SETTLE = 0.02

      # target: Target. order: {"programs" => [paths], "seconds" => Numeric, "bpftrace" => path, "setpriv" => path or nil,
      # "keys" => Integer, "arguments" => [...]}; the first program is the one whose output counts. tell: called with each
      # message for the command.
      def initialize(target, order, &tell)
        @target = target
        @seconds = order.fetch("seconds")
        @tell = tell
        @state = :attaching
        @since = now
        @snapshot = target.info.snapshot
        @semaphores = semaphores(order.fetch("programs"))
        @before = @semaphores.map { |address| target.info.tracers(address) }
        @tracers = order.fetch("programs").map { |program| start(order, program) }
        @tracer = @tracers.first
      end

      # To be read by whoever runs the loop: IO => the method that takes its bytes.
      def streams
        @tracers.flat_map { |tracer| [tracer[:out], tracer[:err]] }.reject(&:closed?)
      end

      # Takes what is there to read on one of #streams.
      def read(stream)
        tracer = @tracers.find { |one| [one[:out], one[:err]].include?(stream) }
        bytes = stream.read_nonblock(1 << 16, exception: false)
        return if bytes == :wait_readable
        return stream.close if bytes.nil?

        if stream == tracer[:err] then tracer[:errors] << bytes.byteslice(0, 4096)
        elsif tracer == @tracer then lines(tracer, bytes) { |line| @tell.call(:output, line) }
        end
      end

      # Ends early: at the next flush, or at once when asked a second time.
      def stop
        observe # the interval may have begun since the last look
        case @state
        when :attaching, :waiting then give_up
        when :counting then close(:stopped)
        when :closing then interrupt(:stopped)
        end
      rescue SystemCallError, EOFError # #step sees to the end of the process
        nil
      end

      # No hook may outlive the command.
      def kill = @tracers.each { |tracer| signal(tracer, :KILL) }

      # To be called every POLL seconds. Returns true when all is over.
      def step
        @tracers.each { |tracer| tracer[:status] ||= Process.wait2(tracer[:pid], Process::WNOHANG)&.last }
        return finish if @tracers.all? { |tracer| tracer[:status] } && streams.empty?

        observe
        false
      rescue SystemCallError, EOFError # the process's memory is gone with it
        interrupt(:target_ended, grace: 0.5) unless @state == :ending
        false
      end

      private

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      def observe
        return see_to_the_end if @state == :ending
        return interrupt(:target_ended, grace: 0.5) unless @target.alive?
        return interrupt(:tracer_ended) if @tracers.any? { |tracer| tracer[:status] }

        send(@state)
      end

      def attaching
        return too_late("bpftrace did not attach within #{ATTACH_LIMIT.to_i} s") if now - @since > ATTACH_LIMIT
        return unless @semaphores.zip(@before).all? { |address, before| @target.info.tracers(address) > before }

        go(:waiting)
        @flushes = @target.info.flushes
        @tell.call(:attached, seconds: now - @began)
      end

      def waiting
        return too_late(silence) if now - @since > FIRST_FLUSH_LIMIT
        return if @target.info.flushes == @flushes

        go(:counting)
        @tell.call(:counting, {})
      end

      def counting
        @snapshot = @target.info.snapshot if @snapshot[:flushes] != @target.info.flushes
        close(:time) if now - @since > @seconds - EARLY
      end

      def closing
        @flushed ||= now if @target.info.flushes != @flushes
        interrupt(@reason) if (@flushed && now - @flushed > SETTLE) || now - @since > FLUSH_LIMIT
      end

      # Nothing has been counted yet.
      def give_up
        interrupt(:stopped)
        @interrupt_at = nil
        kill
      end

      def close(reason)
        @snapshot = @target.info.snapshot
        @flushes = @target.info.flushes
        @reason = reason
        go(:closing)
      end

      # bpftrace prints its maps and leaves. `grace`: with -p it notices by itself that the process has ended.
      def interrupt(reason, grace: 0)
        return if @state == :ending

        @reason = reason
        @interrupt_at = now + grace
        go(:ending)
      end

      def see_to_the_end
        return kill if now - @since > EXIT_LIMIT

        watch_detach if @interrupted
        return unless @interrupt_at && now >= @interrupt_at && (!@interrupted || attached?)

        @flushes = @target.info.flushes if @target.alive? && !@interrupted
        @tracers.each { |tracer| signal(tracer, :INT) }
        @interrupted = true
        @interrupt_at = now + INT_AGAIN
      end

      # bpftrace lets go of one probe after the other. A flush in between is in some maps and not in others.
      def watch_detach
        @torn = true if attached? && @target.info.flushes != @flushes
      end

      def attached?
        @target.alive? && @semaphores.zip(@before).any? { |address, before| @target.info.tracers(address) > before }
      end

      def too_late(why)
        @error = why
        interrupt(:failed)
      end

      def silence
        "process #{@target.pid} is traced, but sends no statistics: is it stopped?"
      end

      def finish
        lines(@tracer, "\n") { |line| @tell.call(:output, line) }
        @tell.call(:ended, reason: @reason || :tracer_ended, error: @error, torn: @torn || false, stderr: @tracers.map do |t|
          t[:errors]
        end.join,
                           target: @snapshot)
        true
      end

      def go(state)
        @state = state
        @since = now
      end

      # Addresses in the process.
      def semaphores(programs)
        programs.flat_map { |program| Program.probes(program) }.uniq.map do |name|
          probe = @snapshot[:probes][name] || raise(unknown(name))
          probe[:semaphore]
        end
      end

      def unknown(probe)
        Error.new("the library in process #{@target.pid} (#{@snapshot[:library]}) does not have the probe #{probe}",
                  "update it there")
      end

      def start(order, program)
        @began ||= now
        out, out_writer = IO.pipe(Encoding::BINARY)
        err, err_writer = IO.pipe(Encoding::BINARY)
        command = [order.fetch("bpftrace"), "-f", "json", "-p", @target.pid.to_s, program, "*"]
        command.unshift(order["setpriv"], "--pdeathsig", "KILL", "--") if order["setpriv"]
        # Both names of the same setting; newer ones know both. A group of its own: Ctrl-C is for the command.
        env = {"BPFTRACE_MAP_KEYS_MAX" => order["keys"].to_s, "BPFTRACE_MAX_MAP_KEYS" => order["keys"].to_s,
               "PATH" => "/usr/sbin:/usr/bin:/sbin:/bin", "LANG" => "C.UTF-8"}
        pid = Process.spawn(env, *command, unsetenv_others: true, in: File::NULL, out: out_writer, err: err_writer, pgroup: true)
        [out_writer, err_writer].each(&:close)
        {pid: pid, out: out, err: err, errors: +"", rest: "".b}
      end

      def lines(tracer, bytes)
        tracer[:rest] << bytes
        *whole, tracer[:rest] = tracer[:rest].split("\n", -1)
        whole.each { |line| yield line unless line.empty? }
      end

      def signal(tracer, name)
        Process.kill(name, tracer[:pid]) unless tracer[:status]
      rescue Errno::ESRCH
        nil
      end
    end
  end
end
