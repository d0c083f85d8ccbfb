# frozen_string_literal: true

require "io/wait"
require "json"
require "set"
require_relative "../tracing/bpftrace_process"
require_relative "../tracing/complaint"
require_relative "../tracing/deadline"
require_relative "../tracing/error"
require_relative "../tracing/member"
require_relative "../tracing/refused"
require_relative "../tracing/run_delay"
require_relative "../tracing/session"
require_relative "../tracing/text"
require_relative "lock"
require_relative "quota"

module Probescope
  module Otel
    # The privileged half of the bridge. It traces processes as they start and end, with one
    # bpftrace at a time (Tracing::Session), starts the exporter, and passes bpftrace's output to
    # the exporter through a pipe. It does not parse that output.
    class Supervisor
      FOLLOW = 0.5 # seconds between two searches for processes
      POLL = 0.1
      # Seconds before bpftrace or the exporter is restarted. The pause doubles each time that the
      # program runs for less than LONGEST_PAUSE.
      FIRST_PAUSE = 1
      LONGEST_PAUSE = 30
      INT_AGAIN = 0.5
      # Bytes that the exporter has not read yet. Further lines are dropped, and counted.
      ROOM = 8 << 20
      # The most different messages in the log. Without a limit, a stream of new processes, each of
      # which is refused, would fill the log.
      SAID = 4096
      # Matches a line of bpftrace that is a single call, exception or request.
      EVENT = /"data": ?"[SXR] /
      OWN = "{\"is\""
      # LAST: seconds for the whole shutdown. LEAVE: seconds for bpftrace. FLUSH: the least seconds
      # for the exporter. DELAYED: the most seconds in which the exporter waits for a CPU, and which
      # are not counted.
      LAST = 4.8
      DELAYED = 10.0
      LEAVE = 2.5
      FLUSH = 1.5
      EXPORTER_THREADS = 8 # the most threads whose waits for a CPU are read
      # Seconds for the exporter to exit after it has given up.
      SPARE = 0.3
      # The most processes whose own limits are read in one turn.
      LOOKS = 50

      # order: Order. program: Otel::Program. exporter: a function that starts an exporter, with the
      # read end of a pipe, and returns its pid. say: takes a line for the log.
      def initialize(order, program, exporter, say)
        @order = order
        @text = program.text
        @session = Tracing::Session.new(order, program.probes, numbered: true) do |error, one|
          leave_out(one, error) if one
          refuse(error.in_one_line)
        end
        @start_exporter = exporter
        @say = say
        @quota = Quota.new
        @proven = [] # identities of libraries to which a bpftrace was attached
        @limited = {} # pid => Member#limited
        @said = Set.new
        @status = 0
        @pending = []
        @pending_bytes = @dropped = @dropped_told = @dropped_events = 0
        @pause = FIRST_PAUSE
      end

      # Raises Error when nothing can be traced. To be called first.
      def check
        @session.check_numbers("run the bridge on the host, or in a container with --pid=host (hostPID), " \
                               "or use bpftrace 0.23 or later")
        @session.check_processes
      end

      # Runs until #stop, or until the processes from the command line have ended. Returns the exit
      # status.
      def run
        @program = @session.file("otel.bt", @text)
        @lock = Lock.new
        start_exporter
        turn until @stopped
        leave
      ensure
        @session.discard
        Tracing::BpftraceProcess.await_left do
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
        pass_on
        tell_dropped if @dropped > @dropped_told && @pending.empty?
        attached if bpftrace && !@attached && @session.attached?
        bpftrace_ended if bpftrace && @session.ended?
        exporter_ended if Process.wait(@exporter, Process::WNOHANG)
      end

      def follow
        @followed = now
        # With very many short-lived processes, their messages would outgrow what the exporter
        # reads.
        return if @pending_bytes > 2 * ROOM

        @session.follow { |what, one| what == :came ? meet(one) : forget(one.pid) }
        look_at_limits
        return ended if members.empty? && @order.comm.nil? && !@session.children_may_come?

        say_once("there is no such process yet; waiting for one") if members.empty?
        trace if bpftrace.nil? ? members.any? : members.any? { |one| !@session.covered?(one) }
      end

      def members = @session.members

      # The running bpftrace, or nil.
      def bpftrace = @session.bpftraces.first

      # Returns whether the process is traced. With two bridges on one process, everything would be
      # sent twice.
      def meet(one)
        unless @quota.for?(one.pid)
          return refuse("more than #{Quota::MOST} processes: the others are left out")
        end
        unless @lock.take(one.pid)
          return refuse("process #{one.pid} has another bridge already, and is left to it")
        end

        displace(@quota.take(one.pid))
        tell_target(one)
        true
      end

      def displace(pid)
        found = members.find { |one| one.pid == pid } or return
        @session.drop(found)
        forget(pid)
      end

      # Reads the limits of some processes in each turn, in rotation.
      def look_at_limits
        @to_look_at = members.dup if @to_look_at.to_a.empty?
        (@to_look_at.shift(LOOKS) & members).each { |one| look_at_limit(one) }
      end

      # A process removes hooks by itself (PROBESCOPE_MAX_OVERHEAD), and installs them again after a
      # time without tracers.
      def look_at_limit(one)
        one.keep
        limited = one.limited
        return if limited == @limited.fetch(one.pid, Tracing::Member::UNLIMITED)

        @limited[one.pid] = limited
        one.limits_in_words.each { |text| @say.call(text) }
        tell_limit(one.pid)
      end

      def tell_limit(pid) = tell("limited", pid: pid, **@limited.fetch(pid))

      # Returns false.
      def refuse(why)
        @refused = true
        say_once(why)
        false
      end

      def forget(pid)
        @quota.leave(pid)
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
        one.process.resource(one.snapshot)
      rescue Tracing::Refused
        {attributes: {"process.pid" => one.pid}, claims: {}, service_name: nil, executable: nil,
         published: nil}
      end

      def ended
        @say.call("the processes have ended") unless @refused
        @status = 1 if @refused
        stop
      end

      def trace
        return if @again && now < @again

        quit(now + LEAVE) if bpftrace && @attached
        @session.start([@program])
        return unless bpftrace # the libraries cannot be read any more

        @began = now
        tell("tracing")
        @attached = false
      end

      def attached
        @attached = true
        return trace if @session.link_apart?

        @session.unreached.each do |one|
          say_once("process #{one.pid} is not reached: " \
                   "no tracer listens through its library #{one.process.file.path}")
        end
        @proven |= @session.covered
        pids = members.map(&:pid)
        @say.call(format("attached to %d process%s (%s) in %.1f s", pids.size, pids.one? ? "" : "es",
                         "#{pids.first(8).join(", ")}#{", ..." if pids.size > 8}", now - @began))
      end

      # Continues without this process.
      def leave_out(one, error)
        @session.drop(one, error)
        forget(one.pid)
      end

      # A bpftrace that never attached may have failed because of one library. The suspects are the
      # libraries that were never attached. Half of them are left out, and the others are tried.
      def leave_out_suspects
        return if @session.covered.size < 2

        suspects = @session.covered - @proven
        suspects = suspects.last((suspects.size + 1) / 2)
        members.select { |one| suspects.include?(@session.identity(one)) }.each do |one|
          error = Tracing::Error.new("process #{one.pid} is left out, perhaps because of its library: #{why}")
          leave_out(one, error)
          refuse(error.in_one_line)
        end
      end

      # Ends bpftrace and reads the rest of its output.
      def quit(limit)
        while @session.streams.any? && now < limit
          @session.interrupt(INT_AGAIN)
          pass_on
        end
        return if @session.streams.empty?

        @say.call("bpftrace did not end in time; what it had not told yet is lost")
        tell("cut")
      end

      def bpftrace_ended
        tell("cut") if bpftrace.status.signaled?
        @pause = now - @began > LONGEST_PAUSE ? FIRST_PAUSE : [@pause * 2, LONGEST_PAUSE].min
        @again = now + @pause
        @say.call("#{why}; once more in #{@pause} s") if members.any?
        leave_out_suspects unless @attached
        @session.bpftraces.clear
      end

      # bpftrace's error messages, with an explanation.
      def why
        return "bpftrace has ended" if Tracing::Complaint.lines(@session.errors).empty?

        complaint = Tracing::Complaint.error(@session.errors, "has ended", nil)
        Tracing::Text.clean([complaint.message, *complaint.next_step].join("; try: "))
      end

      # Passes on the output that bpftrace has printed; waits for it up to POLL seconds.
      def pass_on
        ready, writable = IO.select(@session.streams, @pending.any? ? [@pipe] : nil, nil, POLL)
        ready&.each { |stream| read(stream) }
        flush if writable
      end

      # Passes whole lines on unchanged. Lines of bpftrace contain a "type"; lines of #tell begin
      # with OWN.
      def read(stream)
        bpftrace.read_lines(stream) { |lines| queue(lines) }
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
        members.each { |one| tell_target(one) }
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
        deadline = Tracing::Deadline.new(LAST, most: DELAYED) { exporter_delay }
        quit(now + LEAVE) if bpftrace
        @session.kill
        write_rest(limit - FLUSH)
        drop_rest if @pending.any?
        tell_dropped
        tell("end", within: limit - now - SPARE)
        write_rest(limit)
        @pipe.close
        await_exporter(deadline) ? @status : 1
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

      def await_exporter(deadline)
        sleep(0.02) until (ended = Process.wait(@exporter, Process::WNOHANG)) || deadline.passed?
        return true if ended

        Process.kill(:KILL, @exporter)
        Process.wait(@exporter)
        @say.call("the exporter did not end in time and was killed: the last figures may be missing")
        false
      end

      # Seconds for which the exporter's threads have waited for a CPU.
      def exporter_delay = Tracing::RunDelay.of(@exporter, EXPORTER_THREADS).values.sum / 1e9
    end
  end
end
