# frozen_string_literal: true

require "io/wait"
require "json"
require "set"
require_relative "../host/complaint"
require_relative "../host/links"
require_relative "../host/tracer"
require_relative "lock"
require_relative "watch"

module Probescope
  module Otel
    # The privileged half of the bridge: finds processes, keeps one bpftrace on them, and hands what
    # it prints to the exporter, which it starts, through one pipe. It reads nothing of what it
    # hands on.
    class Supervisor
      FOLLOW = 0.5 # seconds between two looks for processes
      POLL = 0.1
      # Seconds before bpftrace or the exporter is started again: doubled each time that it does not
      # live for as long.
      FIRST_PAUSE = 1
      LONGEST_PAUSE = 30
      INT_AGAIN = 0.5
      HIDDEN_LIMIT = 2.0 # the kernel does not tell where bpftrace waits
      # What the exporter has not read yet. More is dropped, and counted.
      ROOM = 8 << 20
      # What is said once; processes that come and go have new numbers, and each may be refused.
      SAID = 4096
      # A line of bpftrace's that is a single call or exception.
      EVENT = /"data": ?"[SXR] /
      OWN = "{\"is\""
      # Seconds for all of the end; for bpftrace's part of it; and what the exporter has at least.
      LAST = 4.8
      LEAVE = 2.5
      FLUSH = 1.5
      # For the exporter to end when it has given up.
      SPARE = 0.3
      # Processes whose own limits are read in one look.
      LOOKS = 50

      # order: Order. program: its text. exporter: starts one, with the end of a pipe to read, and
      # returns its pid. say: takes a line for the log.
      def initialize(order, program, probes, exporter, say)
        @order = order
        @text = program
        @watch = Watch.new(order, probes) { |why| refuse(why) }
        @start_exporter = exporter
        @say = say
        @known = {}
        @proven = [] # identities of libraries to which a bpftrace was attached
        @limited = {} # by pid: Participant#limited
        @said = Set.new
        @apart = [] # ids of library files, see #link_apart?
        @status = 0
        @pending = []
        @pending_bytes = @dropped = @dropped_told = @dropped_events = 0
        @pause = FIRST_PAUSE
      end

      # Until it is stopped, or until the processes have ended that were asked for by number.
      # Returns the exit status.
      def run
        @links = Host::Links.new
        @lock = Lock.new
        @program = @links.file("otel.bt", @text)
        start_exporter
        turn until @stopped
        leave
      ensure
        @tracer&.discard
        @links&.remove
        Host::Tracer.await_left do
          @say.call("the kernel has not let go of bpftrace yet; the bridge ends when it does")
        end
      end

      # Safe to call in a signal handler.
      def stop = @stopped = true

      private

      def say_once(text)
        return if @said.size > SAID || !@said.add?(text)

        if @said.size > SAID
          text = "more was said than anybody reads: no process that cannot be traced is named from now on"
        end
        @say.call(text)
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      def turn
        follow if @followed.nil? || now - @followed > FOLLOW
        pass_on(@tracer ? @tracer.streams : [])
        tell_dropped if @dropped > @dropped_told && @pending.empty?
        attached unless @tracer.nil? || @attached
        tracer_ended if @tracer&.status && @tracer.streams.empty?
        exporter_ended if Process.wait(@exporter, Process::WNOHANG)
      end

      def follow
        @followed = now
        # Of processes that come and go there is more to tell than the exporter reads.
        return if @pending_bytes > 2 * ROOM

        found = @watch.look.to_h { |one| [one.pid, one] }
        (@known.keys - found.keys).each { |pid| forget(pid) }
        (found.keys - @known.keys).each { |pid| meet(found[pid]) }
        look_at_limits
        return ended if @known.empty? && (@watch.closed? || @watch.over?)

        say_once("there is no such process yet; waiting for one") if @known.empty?
        trace if @known.any? && (@tracer.nil? || uncovered?)
      end

      # Two bridges on one process would send everything twice.
      def meet(one)
        unless @lock.take(one.pid)
          return refuse("process #{one.pid} has another bridge already, and is left to it")
        end

        @known[one.pid] = one
        tell_target(one)
      end

      # Some of the processes, and the next ones the next time.
      def look_at_limits
        @to_look_at = @known.keys if @to_look_at.to_a.empty?
        @to_look_at.shift(LOOKS).each { |pid| @known[pid]&.then { |one| look_at_limit(one) } }
      end

      # A process takes hooks out by itself (PROBESCOPE_MAX_OVERHEAD), and puts them in again when
      # nobody has listened for a while.
      def look_at_limit(one)
        one.keep
        limited = one.limited
        return if limited == @limited.fetch(one.pid, Host::Participant::UNLIMITED)

        @limited[one.pid] = limited
        one.limits_in_words.each { |text| @say.call(text) }
        tell_limit(one.pid)
      end

      def tell_limit(pid) = tell("limited", pid: pid, **@limited.fetch(pid))

      def refuse(why)
        @refused = true
        say_once(why)
      end

      def forget(pid)
        @known.delete(pid)
        @lock.release(pid)
        @limited.delete(pid)
        tell("gone", pid: pid)
      end

      def tell_target(one)
        limits = !one.snapshot[:overhead_limit].nil?
        tell("target", pid: one.pid, limits: limits, **resource(one))
        tell_limit(one.pid) if @limited.key?(one.pid)
      end

      # See Resources.
      def resource(one)
        one.target.resource(one.snapshot)
      rescue Host::Refused
        {attributes: {"process.pid" => one.pid}, claims: {}, service_name: nil, executable: nil,
         published: nil}
      end

      def ended
        @say.call("the processes have ended") unless @refused
        @status = 1 if @refused
        stop
      end

      def uncovered? = (@known.each_value.map { |one| identity(one) }.uniq - @covered).any?

      def trace
        return if @again && now < @again

        replace_tracer if @tracer
        options, library = alone? ? [["-p", @known.keys.first.to_s], "*"] : [[], linked]
        return @tracer = nil if @known.empty? # whose libraries cannot be read any more

        @covered = @known.each_value.map { |one| identity(one) }.uniq
        @tracer = Host::Tracer.new(@order, @program, options, library)
        @began = now
        tell("tracing")
        @attached = @interrupted = false
      end

      # What tells the library files of processes apart.
      def identity(one)
        return one.target.identity unless @apart.include?(one.target.file.id)

        [*one.target.identity, *one.target.file.id]
      end

      # Whether it waits for events the kernel tells, where it tells such things.
      def attached
        return unless @tracer.waiting_for_events? || (@tracer.hidden? && now - @began > HIDDEN_LIMIT)

        unreached = @known.values.select(&:alive?).reject(&:raised?)
        return unless @known.each_value.any?(&:raised?)

        @attached = true
        return if unreached.any? && link_apart?(unreached)

        @proven |= @covered
        pids = @known.keys
        @say.call(format("attached to %d process%s (%s) in %.1f s", pids.size, pids.one? ? "" : "es",
                         "#{pids.first(8).join(", ")}#{", ..." if pids.size > 8}", now - @began))
      end

      # Copies of a library on several file systems may have one number, and so seem to be one file,
      # while a file that several overlays show is one. The kernel knows: through which file nobody
      # listens has a link of its own from then on, one after the other.
      def link_apart?(unreached)
        ids = unreached.map { |one| one.target.file.id }.uniq - @apart
        unless ids.empty?
          @apart << ids.first
          trace
          return true
        end
        unreached.each do |one|
          say_once("process #{one.pid} is not reached: " \
                   "nobody listens through its library #{one.target.file.path}")
        end
        false
      end

      def alone?
        @watch.alone? && @known.one? && @known.each_value.first.target.on_disk?
      rescue Host::Refused
        false
      end

      def linked
        @links.clear
        @known.values.uniq { |one| identity(one) }.each do |one|
          @links.add(@watch.library(one))
        rescue Host::Refused => e
          leave_out(one, e)
        end
        @links.pattern
      end

      # The bridge goes on without it.
      def leave_out(one, error)
        @watch.set_aside(one, error)
        forget(one.pid)
      end

      # A bpftrace that was never attached may have failed at one of the libraries. Those that were
      # never in one that was attached are suspected; without half of them the others are tried.
      def leave_out_suspects
        suspects = @covered - @proven
        suspects = suspects.last((suspects.size + 1) / 2) if @covered.size > 1
        return if @covered.size < 2

        @known.values.select { |one| suspects.include?(identity(one)) }.each do |one|
          leave_out(one,
                    Host::Error.new("process #{one.pid} is left out, perhaps because of its library: #{why}"))
        end
      end

      def replace_tracer
        quit(now + LEAVE) if @attached
        @tracer.discard
      end

      # Has bpftrace tell what it has yet to tell.
      def quit(limit)
        again = 0
        while @tracer.streams.any? && now < limit
          again = interrupt if now > again
          pass_on(@tracer.streams)
        end
        return if @tracer.streams.empty?

        @say.call("bpftrace did not end in time; what it had not told yet is lost")
        tell("cut")
      end

      # bpftrace 0.17 forgets a signal that comes while it reads, and waits for events again.
      # Returns when to look next.
      def interrupt
        @tracer.signal(:INT) if !@interrupted || @tracer.waiting_for_events?
        @interrupted = true
        now + INT_AGAIN
      end

      def tracer_ended
        tell("cut") if @tracer.status.signaled?
        @pause = now - @began > LONGEST_PAUSE ? FIRST_PAUSE : [@pause * 2, LONGEST_PAUSE].min
        @again = now + @pause
        @say.call("#{why}; once more in #{@pause} s") if @known.any?
        leave_out_suspects unless @attached
        @tracer = nil
      end

      # What bpftrace complained of, and what that means.
      def why
        return "bpftrace has ended" if Host::Complaint.lines(@tracer.errors).empty?

        complaint = Host::Complaint.error(@tracer.errors, "has ended", nil)
        Host::Text.clean([complaint.message, *complaint.next_step].join("; try: "))
      end

      # What bpftrace has said meanwhile; waits for it for a moment.
      def pass_on(streams)
        ready, writable = IO.select(streams, @pending.any? ? [@pipe] : nil, nil, POLL)
        ready&.each { |stream| read(stream) }
        flush if writable
      end

      # Whole lines, as they are. Those of bpftrace have a "type", and those of #tell begin with
      # OWN.
      def read(stream)
        @tracer.read_lines(stream) { |lines| queue(lines) }
      end

      # There is always room for that.
      def tell(kind, **fields) = push("#{JSON.generate({is: kind, **fields})}\n")

      def queue(lines) = @pending_bytes > ROOM ? drop(lines) : push(lines)

      def push(lines)
        @pending << lines
        @pending_bytes += lines.bytesize
        flush
      end

      def drop(lines)
        @dropped += lines.count("\n")
        @dropped_events += lines.scan(EVENT).size
      end

      def tell_dropped
        @dropped_told = @dropped
        tell("dropped", lines: @dropped, events: @dropped_events)
      end

      def flush
        while (text = @pending.first)
          written = @pipe.write_nonblock(text, exception: false)
          return if written == :wait_writable

          @pending_bytes -= written
          written < text.bytesize ? @pending[0] = text.byteslice(written..) : @pending.shift
        end
      rescue Errno::EPIPE
        @pending.clear # it has ended, and is about to be started again
        @pending_bytes = 0
      end

      def start_exporter
        input, @pipe = IO.pipe
        @exporter = @start_exporter.call(input)
        input.close
        @known.each_value { |one| tell_target(one) }
      end

      def exporter_ended
        @say.call("the exporter has ended (#{Process.last_status.to_s[/(exit|SIG).*/]}); " \
                  "starting another one")
        sleep(@pause)
        @pipe.close
        start_exporter
      end

      # bpftrace first, so that what it has to say is sent too.
      def leave
        limit = now + LAST
        quit(now + LEAVE) if @tracer
        @tracer&.kill
        write_rest(limit - FLUSH)
        drop_rest if @pending.any?
        tell_dropped
        tell("end", within: limit - now - SPARE)
        write_rest(limit)
        @pipe.close
        await_exporter(limit) ? @status : 1
      end

      def write_rest(limit)
        while @pending.any? && now < limit
          flush if @pipe.wait_writable(POLL)
        end
      end

      # What bpftrace said and the exporter has no time to read any more. The first line may have
      # been written in part.
      def drop_rest
        own, others = @pending.partition { |text| text.start_with?(OWN) }
        @pending = []
        @pending_bytes = 0
        others.each { |lines| drop(lines) }
        ["\n", *own].each { |text| push(text) }
      end

      def await_exporter(limit)
        sleep(0.02) until (ended = Process.wait(@exporter, Process::WNOHANG)) || now > limit
        return true if ended

        Process.kill(:KILL, @exporter)
        Process.wait(@exporter)
        false
      end
    end
  end
end
