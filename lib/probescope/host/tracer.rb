# frozen_string_literal: true

require_relative "bpftrace"
require_relative "tool"

module Probescope
  module Host
    # One bpftrace, in the helper.
    class Tracer
      MAX_ERRORS = 1 << 16
      # Seconds for the end of one that has been killed, and until it has been.
      END_LIMIT = 2.0
      KILL_LIMIT = 20.0
      # Seconds after SIGSTOP from which on one that has no probe is killed although it has not
      # stopped.
      STOP_LIMIT = 1.0

      attr_reader :pid, :out, :err

      # program: its path. options, library: ["-p", PID] or [], and what the program takes for $1.
      # Raises Error when there is no bpftrace that may run.
      def initialize(order, program, options, library)
        @out, out_writer = IO.pipe(Encoding::BINARY)
        @err, err_writer = IO.pipe(Encoding::BINARY)
        @errors = "".b
        @rest = "".b
        @hidden = false
        # Without "--" bpftrace takes options from what follows the program too: -cCOMMAND in a
        # function's name would be run.
        command = [*Tracer.command, "-f", "json", *options, "--", program, library, *order.arguments]
        # Both names of the same setting; newer ones know both. A group of its own: Ctrl-C is for
        # the command.
        env = {**Tool::ENVIRONMENT, "BPFTRACE_MAP_KEYS_MAX" => order.keys.to_s,
                                    "BPFTRACE_MAX_MAP_KEYS" => order.keys.to_s,
                                    "BPFTRACE_PERF_RB_PAGES" => order.pages.to_s,
                                    "BPFTRACE_STRLEN" => order.strings&.to_s,
                                    "BPFTRACE_MAX_STRLEN" => order.strings&.to_s}
        @pid = Process.spawn(env, *command, unsetenv_others: true, in: File::NULL, out: out_writer,
                                            err: err_writer, pgroup: true)
        [out_writer, err_writer].each(&:close)
      end

      # bpftrace, which ends with the helper where there is a setpriv.
      def self.command
        bpftrace = Tool.find("bpftrace") or raise Bpftrace.missing
        setpriv = Tool.find("setpriv")
        [*([setpriv, "--pdeathsig", "KILL", "--"] if setpriv), bpftrace]
      end

      # What it has said on stderr.
      def errors = @errors.dup.force_encoding(Encoding::UTF_8).scrub

      def streams = [out, err].reject(&:closed?)

      # Takes what is there to read on one of #streams. Yields each whole line of stdout.
      def read(stream, &block)
        bytes = stream.read_nonblock(1 << 16, exception: false)
        return if bytes == :wait_readable
        return stream.close if bytes.nil?

        return lines(bytes, &block) if stream == out

        complain(bytes)
      end

      # The same, as one text of whole lines.
      def read_lines(stream)
        bytes = stream.read_nonblock(1 << 16, exception: false)
        return if bytes == :wait_readable
        return stream.close if bytes.nil?
        return complain(bytes) if stream == err

        lines, end_of_line, @rest = (@rest + bytes).rpartition("\n")
        yield lines + end_of_line unless end_of_line.empty?
      end

      # What came without an end of line.
      def finish(&block) = lines("\n", &block)

      # Process::Status once it has ended.
      def status
        @status ||= Process.wait2(pid, Process::WNOHANG)&.last
      end

      # True when it waits for events, which it does when all its probes are attached, and only
      # then. Its messages do not say: up to 0.23 they come before the attach, later after it. A
      # kernel that hides where a process waits says "0", as for one that runs: then see #hidden?.
      def waiting_for_events?
        place = File.read("/proc/#{pid}/wchan")
        @hidden = ["", "0"].include?(place) && sleeping?
        place.include?("epoll")
      rescue SystemCallError
        false
      end

      # When #waiting_for_events? looked, it slept, and the kernel did not tell where.
      def hidden? = @hidden

      def signal(name)
        Process.kill(name, pid) unless status
      rescue Errno::ESRCH
        nil
      end

      # Threads that see to the end of those that #discard did not see end.
      def self.left = (@left ||= [])

      # Whoever started bpftrace waits here before it ends: that would send a SIGKILL, wherever
      # bpftrace is. Yields where it takes a while. What the block raises, such as EPIPE of an
      # output that nobody reads any more, is raised after the wait.
      def self.await_left
        yield if left.any?(&:alive?)
      ensure
        left.each(&:join)
      end

      # Has it end with everything that it has to say unread. To be called again until #status is
      # there. A SIGKILL that comes while the kernel puts a probe into a process or takes it out
      # makes that fail half-way: the breakpoint and the raised semaphore stay, and the process pays
      # for them. A process that has stopped is in no system call. One that does not stop waits for
      # the kernel: for a probe, or for a file, where it has no probe yet.
      def kill
        return if status || @killed

        @told ||= monotonic
        signal(:STOP)
        return unless stopped? || (monotonic - @told > STOP_LIMIT && !probes?)

        signal(:KILL)
        @killed = true # it ends by itself from now on, however long the kernel takes
      end

      # The same, and waits.
      def discard
        began = monotonic
        sleep 0.005 until kill_and_see || monotonic - began > (@killed ? END_LIMIT : KILL_LIMIT)
        leave unless status
        streams.each(&:close)
      end

      private

      def monotonic = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      def kill_and_see
        kill
        status
      end

      # The kernel ends no process that waits for a file system which has taken its request: a
      # traced process may have its library on one that never answers.
      def leave
        Tracer.left << Thread.new { sleep 0.1 until kill_and_see }
      end

      # The kernel has a probe for it. What closes meanwhile may be one.
      def probes?
        Dir["/proc/#{pid}/fd/*"].any? { |path| File.readlink(path).include?("perf_event") }
      rescue SystemCallError
        true
      end

      def stopped?
        Dir["/proc/#{pid}/task/*/stat"].all? { |path| File.read(path).rpartition(")").last.start_with?(" T") }
      rescue SystemCallError
        false
      end

      # bpftrace says little, and a verifier much.
      def complain(bytes)
        @errors << bytes if @errors.bytesize < MAX_ERRORS
      end

      def sleeping? = File.read("/proc/#{pid}/stat").rpartition(")").last.start_with?(" S")

      def lines(bytes)
        @rest << bytes
        *whole, @rest = @rest.split("\n", -1)
        whole.each { |line| yield line unless line.empty? }
      end
    end
  end
end
