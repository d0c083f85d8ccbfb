# frozen_string_literal: true

require "io/wait"
require "socket"
require_relative "foreign"
require_relative "refused"

module Probescope
  module Host
    # Puts questions about foreign processes (Foreign) to a child, one after the other, and has an answer or a Refused within seconds
    # whatever a process does: a child that does not answer is killed, and the next question starts another one. A child that waits for a
    # file of FUSE may outlive its KILL until that file answers, so nobody waits for its end.
    class Reader
      # Seconds that an answer may take, and that it may take while the child waits for a CPU or uses one.
      LIMIT = 1.0
      LONGEST = 5.0
      # Bytes of address space that the child may take more than it has at first.
      MEMORY = 96 << 20

      Late = Class.new(StandardError)
      Ended = Class.new(StandardError)

      class << self
        # Puts a question to the reader of this process, see #ask.
        def ask(...) = ours.ask(...)

        # See #ask_each.
        def ask_each(...) = ours.ask_each(...)

        private

        def ours
          @reader = new unless @reader&.ours?
          @reader
        end
      end

      def initialize
        @parent = Process.pid
      end

      # False in a forked child.
      def ours? = @parent == Process.pid

      # question: a method of Foreign, which takes a PID or a Place first. Returns what it returns; an IO at the end of an Array is the same
      # open file here. Raises Refused.
      def ask(question, subject, *arguments)
        put([question, [subject], *arguments])
        kind, value, with_file = take.first
        raise Refused.new(*value) if kind == :refused

        with_file ? [*value, @socket.recv_io(File, "rb")] : value
      rescue Late, Ended => e
        stop
        pid = subject.is_a?(Integer) ? subject : subject.pid
        raise Refused.new(:slow, "process #{pid}: #{e.is_a?(Late) ? "it was not read within #{LIMIT.round} s" : "its reader ended"}")
      end

      # The same question about several: a value or a Refused for each, in their order; from that moment on for no more of them.
      def ask_each(question, subjects, limit: nil)
        answers = []
        answers.concat(some(question, subjects.drop(answers.size), limit)) while answers.size < subjects.size && (limit.nil? || now < limit)
        answers
      end

      private

      # Answers about the first of them. The child gives those that it has after a while.
      def some(question, subjects, limit)
        put([question, subjects])
        take.map { |kind, value| kind == :value ? value : Refused.new(*value) }
      rescue Late, Ended # because of one of them
        stop
        subjects.each_with_object([]) do |subject, answers|
          break answers if limit && now > limit

          answers << attempt(question, subject)
        end
      end

      def attempt(question, subject)
        ask(question, subject)
      rescue Refused => e
        e
      end

      # One that was killed meanwhile is replaced.
      def put(message)
        start unless @socket
        Frames.write(@socket, message)
      rescue SystemCallError
        stop
        start
        Frames.write(@socket, message)
      end

      def take
        began = moved = now
        until @socket.wait_readable(LIMIT / 4)
          moved = now if running?
          raise Late if now - moved >= LIMIT || now - began > LONGEST
        end
        Frames.read(@socket) or raise Ended
      rescue SystemCallError
        raise Ended
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      # What is slow for want of a CPU does not hang, nor what has used one since it was looked at last.
      def running?
        state, *fields = File.read("/proc/#{@pid}/stat").rpartition(") ").last.split
        before = @cpu
        @cpu = fields.values_at(10, 11)
        state == "R" || @cpu != before
      rescue SystemCallError
        false
      end

      def start
        @socket, other = UNIXSocket.pair
        @pid = Process.fork { Child.new(other).run }
        Process.detach(@pid)
        other.close
      end

      def stop
        Process.kill(:KILL, @pid)
      rescue Errno::ESRCH
        nil
      ensure
        @socket.close
        @socket = nil
      end

      # Objects over a socket.
      module Frames
        module_function

        def write(socket, object)
          bytes = Marshal.dump(object)
          socket.write([bytes.bytesize].pack("L"), bytes)
        end

        # nil at the end.
        def read(socket)
          head = socket.read(4)
          Marshal.load(socket.read(head.unpack1("L"))) if head&.bytesize == 4 # rubocop:disable Security/MarshalLoad -- from our own child
        rescue ArgumentError, TypeError, EOFError # it was killed in the middle
          nil
        end
      end

      # The other side: it has nothing open but its socket, and ends with it.
      class Child
        # Seconds for a row of answers.
        ROW = LIMIT / 4

        def initialize(socket)
          @socket = socket
        end

        def run
          prepare
          while (question, subjects, *arguments = Frames.read(@socket))
            reply(answers(question, subjects, arguments))
          end
        ensure
          exit!(0)
        end

        private

        def prepare
          Process.setproctitle("probescope: reader of processes")
          %w[INT TERM HUP].each { |name| trap(name, "IGNORE") }
          ObjectSpace.each_object(IO) { |io| io.close unless io.closed? || io == @socket }
          # Whatever is read is bytes, and becomes text where it is handed out.
          Encoding.default_external = Encoding::BINARY
          Process.setrlimit(:AS, (File.read("/proc/self/statm").to_i * 4096) + MEMORY)
        end

        def reply(answers)
          files = answers.filter_map { |answer| file(answer) }
          Frames.write(@socket, answers)
          files.each do |file|
            @socket.send_io(file)
            file.close
          end
        end

        # Those that there are after a while, one at least.
        def answers(question, subjects, arguments)
          began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
          subjects.each_with_object([]) do |subject, found|
            break found if found.any? && Process.clock_gettime(Process::CLOCK_MONOTONIC) - began > ROW

            found << answer(question, subject, arguments)
          end
        end

        # The open file of an answer goes by itself, and a mark in its place.
        def file(answer)
          kind, value = answer
          return unless kind == :value && value.is_a?(Array) && value.last.is_a?(IO)

          answer << true
          value.pop
        end

        # [:value, ...] or [:refused, what Refused takes]. Nothing else comes out of here.
        def answer(question, subject, arguments)
          pid = subject.is_a?(Integer) ? subject : subject.pid
          [:value, Foreign.public_send(question, subject, *arguments)]
        rescue Refused => e
          prefix = "process #{pid}: " if %i[malformed busy].include?(e.kind)
          [:refused, [e.kind, "#{prefix}#{e.message}", e.next_step]]
        rescue Errno::EACCES, Errno::EPERM
          [:refused, [:denied, "process #{pid} may not be read", "run the command as root, or as a user who may use sudo"]]
        rescue Errno::ENOENT, Errno::ESRCH, EOFError
          [:refused, [:gone, "process #{pid} has just ended", "`probescope ps` lists the processes that can be traced"]]
        rescue NoMemoryError
          [:refused, [:slow, "process #{pid}: to read it takes too much memory"]]
        rescue StandardError, SystemStackError => e
          [:refused, [:malformed, "process #{pid}: it cannot be read (#{e.class} at #{e.backtrace&.first})"]]
        end
      end
    end
  end
end
