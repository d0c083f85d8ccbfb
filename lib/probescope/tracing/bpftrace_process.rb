# frozen_string_literal: true

require_relative "bounds"
require_relative "bpftrace"
require_relative "locked_memory"
require_relative "tool"

module Probescope
  module Tracing
    # One bpftrace process, in the helper.
    class BpftraceProcess
      MAX_ERRORS = 1 << 16
      # END_LIMIT: seconds to wait for the end of bpftrace after its SIGKILL. KILL_LIMIT: seconds to
      # wait until a SIGKILL does no harm.
      END_LIMIT = 2.0
      KILL_LIMIT = 20.0
      # Seconds after SIGSTOP. After that, a bpftrace without probes is killed although it has not
      # stopped.
      STOP_LIMIT = 1.0
      # fcntl's F_SETPIPE_SZ, which Ruby has no name for.
      SET_PIPE_SIZE = 1031
      # A line that bpftrace prints when it reads events. One line may come before the attach.
      OF_EVENTS = /^\{"type": "(?!attached_probes)/

      attr_reader :pid, :out, :err

      # program: its path. options: ["-p", PID] or []. library: the program's $1. Raises Error when
      # there is no bpftrace that may run with privilege.
      def initialize(order, program, options, library)
        @out, out_writer = IO.pipe(Encoding::BINARY)
        @err, err_writer = IO.pipe(Encoding::BINARY)
        widen(@out)
        @errors = "".b
        @rest = "".b
        @attached = @hidden = false
        # Without "--", bpftrace also parses the arguments after the program as options: -cCOMMAND
        # in a function's name would be executed.
        command = [*BpftraceProcess.command, "-f", "json", *options, "--", program, library, *order.arguments]
        # Old and new names of the same settings; newer versions know both. bpftrace runs in a
        # process group of its own, so that Ctrl-C reaches only the command.
        env = {**Tool::ENVIRONMENT, "BPFTRACE_MAP_KEYS_MAX" => order.keys.to_s,
                                    "BPFTRACE_MAX_MAP_KEYS" => order.keys.to_s,
                                    "BPFTRACE_PERF_RB_PAGES" => LockedMemory.pages(order.pages).to_s,
                                    "BPFTRACE_STRLEN" => order.strings&.to_s,
                                    "BPFTRACE_MAX_STRLEN" => order.strings&.to_s}
        @pid = Process.spawn(env, *command, unsetenv_others: true, in: File::NULL, out: out_writer,
                                            err: err_writer, pgroup: true)
        [out_writer, err_writer].each(&:close)
      end

      # The command line of bpftrace. With setpriv, bpftrace is killed when the helper ends.
      def self.command
        bpftrace = Tool.find("bpftrace") or raise Bpftrace.missing
        setpriv = Tool.find("setpriv")
        [*([setpriv, "--pdeathsig", "KILL", "--"] if setpriv), bpftrace]
      end

      # What bpftrace has printed on stderr.
      def errors = @errors.dup.force_encoding(Encoding::UTF_8).scrub

      def streams = [out, err].reject(&:closed?)

      # Reads the available bytes of one of #streams. Yields each whole line of stdout.
      def read(stream, &block)
        bytes = stream.read_nonblock(1 << 16, exception: false)
        return if bytes == :wait_readable
        return stream.close if bytes.nil?

        return lines(bytes, &block) if stream == out

        complain(bytes)
      end

      # The same, but yields whole lines as one text.
      def read_lines(stream)
        bytes = stream.read_nonblock(1 << 16, exception: false)
        return if bytes == :wait_readable

        stream.close if bytes.nil?
        return complain(bytes.to_s) if stream == err

        lines, end_of_line, @rest = (@rest + bytes.to_s).rpartition("\n")
        @attached ||= lines.match?(OF_EVENTS)
        yield lines + end_of_line unless end_of_line.empty?
      end

      # Yields the rest of the output, which has no end of line.
      def finish(&block) = lines("\n", &block)

      # Process::Status once bpftrace has ended.
      def status
        @status ||= Process.wait2(pid, Process::WNOHANG)&.last
      end

      # Whether all probes are attached. bpftrace's message does not tell this: up to 0.23 it comes
      # before the attach, later after it. But bpftrace reads and waits for events only after the
      # attach. If events come faster than bpftrace reads them, it never waits.
      def attached? = @attached ||= waiting_for_events?

      # True when bpftrace waits for events. A kernel that hides where a process waits reports "0",
      # as for a running process: then see #hidden?.
      def waiting_for_events?
        place = File.read("/proc/#{pid}/wchan")
        @hidden = ["", "0"].include?(place) && sleeping?
        place.include?("epoll")
      rescue SystemCallError
        false
      end

      # True when bpftrace slept at the last #waiting_for_events?, and the kernel did not report
      # where.
      def hidden? = @hidden

      # Lets bpftrace print its maps and end. SIGINT makes a write fail that waits for room in the
      # pipe, and after a failed write bpftrace prints nothing more (decision 229). So the pipe is
      # emptied first. bpftrace needs much longer to fill it again than the signal to arrive.
      def interrupt
        drain
        signal(:INT)
      end

      def signal(name)
        Process.kill(name, pid) unless status
      rescue Errno::ESRCH
        nil
      end

      # Threads that wait for each bpftrace that #discard did not see end.
      def self.left = (@left ||= [])

      # Waits for those threads. The process that started bpftrace calls this before it exits,
      # because its exit sends bpftrace a SIGKILL at once. Yields where the wait takes a while. An
      # exception of the block, such as EPIPE on an output that nobody reads any more, is raised
      # after the wait.
      def self.await_left
        yield if left.any?(&:alive?)
      ensure
        left.each(&:join)
      end

      # Kills bpftrace; its remaining output is not read. Call it again until #status is set.
      #
      # A SIGKILL during an attach or a detach interrupts the kernel half-way: the breakpoint and
      # the raised semaphore stay in the process, and the process pays for them. So bpftrace is
      # stopped first, because a stopped process is in no system call. A bpftrace that does not stop
      # is waiting in the kernel: either for a probe, or for a file, before it has any probe.
      def kill
        return if status || @killed

        @told ||= monotonic
        signal(:STOP)
        return unless stopped? || (monotonic - @told > STOP_LIMIT && !probes?)

        signal(:KILL)
        @killed = true # it ends without further help, however long the kernel takes
      end

      # Calls #kill until bpftrace has ended, or the time is up.
      def discard
        began = monotonic
        sleep 0.005 until kill_and_see || monotonic - began > (@killed ? END_LIMIT : KILL_LIMIT)
        leave unless status
        streams.each(&:close)
      end

      private

      def monotonic = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      # A user with very many pipes may not have larger ones.
      def widen(pipe)
        pipe.fcntl(SET_PIPE_SIZE, Bounds::PIPE_BYTES)
      rescue SystemCallError
        nil
      end

      # Takes what is in the pipe. #read and #read_lines yield it.
      def drain
        return if out.closed?

        bytes = out.read_nonblock(Bounds::PIPE_BYTES, exception: false)
        @rest << bytes if bytes.is_a?(String)
      end

      def kill_and_see
        kill
        status
      end

      # The kernel cannot end a process that waits for a file system which has taken its request. A
      # traced process may have its library on a file system that never answers.
      def leave
        BpftraceProcess.left << Thread.new { sleep 0.1 until kill_and_see }
      end

      # Whether bpftrace has a probe in the kernel. A descriptor that is closed meanwhile may be
      # one.
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

      # The limit is for the kernel's verifier, which prints much more than bpftrace itself.
      def complain(bytes)
        @errors << bytes if @errors.bytesize < MAX_ERRORS
      end

      def sleeping? = File.read("/proc/#{pid}/stat").rpartition(")").last.start_with?(" S")

      def lines(bytes)
        @rest << bytes
        *whole, @rest = @rest.split("\n", -1)
        @attached ||= whole.any?(OF_EVENTS)
        whole.each { |line| yield line unless line.empty? }
      end
    end
  end
end
