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
    # The privileged half of the bridge. It finds processes, runs one bpftrace on them, starts the
    # exporter, and passes bpftrace's output to the exporter through a pipe. It does not parse that
    # output.
    class Supervisor
      FOLLOW = 0.5 # seconds between two searches for processes
      POLL = 0.1
      # Seconds before bpftrace or the exporter is restarted. The pause doubles each time that the
      # program runs for less than LONGEST_PAUSE.
      FIRST_PAUSE = 1
      LONGEST_PAUSE = 30
      INT_AGAIN = 0.5
      HIDDEN_LIMIT = 2.0 # seconds, where the kernel hides bpftrace's wait
      # Bytes that the exporter has not read yet. Further lines are dropped, and counted.
      ROOM = 8 << 20
      # The most different messages in the log. Without a limit, a stream of new processes, each of
      # which is refused, would fill the log.
      SAID = 4096
      # Matches a line of bpftrace that is a single call, exception or request.
      EVENT = /"data": ?"[SXR] /
      OWN = "{\"is\""
      # LAST: seconds for the whole shutdown. LEAVE: seconds for bpftrace. FLUSH: the least seconds
      # for the exporter.
      LAST = 4.8
      LEAVE = 2.5
      FLUSH = 1.5
      # Seconds for the exporter to exit after it has given up.
      SPARE = 0.3
      # The most processes whose own limits are read in one turn.
      LOOKS = 50

      # order: Order. program: its text. exporter: a function that starts an exporter, with the read
      # end of a pipe, and returns its pid. say: takes a line for the log.
      def initialize(order, program, probes, exporter, say)
        @order = order
        @text = program
        @watch = Watch.new(order, probes) { |why| refuse(why) }
        @start_exporter = exporter
        @say = say
        @known = {}
        @proven = [] # identities of libraries to which a bpftrace was attached
        @limited = {} # pid => Participant#limited
        @said = Set.new
        @apart = [] # ids of library files, see #link_apart?
        @status = 0
        @pending = []
        @pending_bytes = @dropped = @dropped_told = @dropped_events = 0
        @pause = FIRST_PAUSE
      end

      # Runs until #stop, or until the processes from the command line have ended. Returns the exit
      # status.
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
          text = "too many messages: processes that cannot be traced are not named from now on"
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
        # With very many short-lived processes, their messages would outgrow what the exporter
        # reads.
        return if @pending_bytes > 2 * ROOM

        found = @watch.look.to_h { |one| [one.pid, one] }
        (@known.keys - found.keys).each { |pid| forget(pid) }
        (found.keys - @known.keys).each { |pid| meet(found[pid]) }
        look_at_limits
        return ended if @known.empty? && (@watch.closed? || @watch.over?)

        say_once("there is no such process yet; waiting for one") if @known.empty?
        trace if @known.any? && (@tracer.nil? || uncovered?)
      end

      # With two bridges on one process, everything would be sent twice.
      def meet(one)
        unless @lock.take(one.pid)
          return refuse("process #{one.pid} has another bridge already, and is left to it")
        end

        @known[one.pid] = one
        tell_target(one)
      end

      # Reads the limits of some processes in each turn, in rotation.
      def look_at_limits
        @to_look_at = @known.keys if @to_look_at.to_a.empty?
        @to_look_at.shift(LOOKS).each { |pid| @known[pid]&.then { |one| look_at_limit(one) } }
      end

      # A process removes hooks by itself (PROBESCOPE_MAX_OVERHEAD), and installs them again after a
      # time without tracers.
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
        return @tracer = nil if @known.empty? # the libraries cannot be read any more

        @covered = @known.each_value.map { |one| identity(one) }.uniq
        @tracer = Host::Tracer.new(@order, @program, options, library)
        @began = now
        tell("tracing")
        @attached = @interrupted = false
      end

      # The identity of a process's library file.
      def identity(one)
        return one.target.identity unless @apart.include?(one.target.file.id)

        [*one.target.identity, *one.target.file.id]
      end

      # Checks whether bpftrace has attached, after which bpftrace waits for events. A time limit is
      # used where the kernel does not report that.
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

      # Copies of a library on several file systems may have the same inode number, and look like
      # one file. A file that several overlays show, however, is one file. So a library through
      # which no process was reached gets a link of its own from then on, one library after the
      # other.
      def link_apart?(unreached)
        ids = unreached.map { |one| one.target.file.id }.uniq - @apart
        unless ids.empty?
          @apart << ids.first
          trace
          return true
        end
        unreached.each do |one|
          say_once("process #{one.pid} is not reached: " \
                   "no tracer listens through its library #{one.target.file.path}")
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

      # Continues without this process.
      def leave_out(one, error)
        @watch.set_aside(one, error)
        forget(one.pid)
      end

      # A bpftrace that never attached may have failed because of one library. The suspects are the
      # libraries that were never attached. Half of them are left out, and the others are tried.
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

      # Ends bpftrace and reads the rest of its output.
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

      # bpftrace 0.17 ignores a signal that comes while it reads, and waits for events again.
      # Returns the time of the next check.
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

      # bpftrace's error messages, with an explanation.
      def why
        return "bpftrace has ended" if Host::Complaint.lines(@tracer.errors).empty?

        complaint = Host::Complaint.error(@tracer.errors, "has ended", nil)
        Host::Text.clean([complaint.message, *complaint.next_step].join("; try: "))
      end

      # Passes on the output that bpftrace has printed; waits for it up to POLL seconds.
      def pass_on(streams)
        ready, writable = IO.select(streams, @pending.any? ? [@pipe] : nil, nil, POLL)
        ready&.each { |stream| read(stream) }
        flush if writable
      end

      # Passes whole lines on unchanged. Lines of bpftrace contain a "type"; lines of #tell begin
      # with OWN.
      def read(stream)
        @tracer.read_lines(stream) { |lines| queue(lines) }
      end

      # The supervisor's own messages are never dropped for lack of room.
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
        @pending.clear # the exporter has ended, and will be restarted
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

      # Ends bpftrace first, so that its last output is sent too.
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

      # Drops bpftrace's lines that the exporter has no time to read. The first line may have been
      # written in part.
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
