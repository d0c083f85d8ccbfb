# frozen_string_literal: true

require "io/wait"
require "socket"
require_relative "bounds"
require_relative "descriptors"
require_relative "foreign"
require_relative "refused"

module Probescope
  module Host
    # Puts questions about foreign processes (Foreign) to a child, one after the other, and has an
    # answer or a Refused within seconds whatever a process does: a child that does not answer is
    # killed, and the next question starts another one. A child that waits for a file of FUSE may
    # outlive its KILL until that file answers, so nobody waits for its end. As long as it has not
    # ended, the process for which it waits is asked nothing more: each question would leave one
    # more such child behind.
    class Reader
      # Seconds that an answer may take, and that it may take while the child waits for a CPU or
      # uses one.
      LIMIT = 1.0
      LONGEST = 5.0
      # Killed children of one user's processes that have not ended; beyond that no other process of
      # that user is looked at.
      MOST_LEFT = 4

      # A killed child: the thread that waits for its end, and whose process it read.
      Left = Struct.new(:thread, :owner)
      # The answer in the place of those that there was no time for.
      REST = [:rest].freeze
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
        @left = {} # by [pid, start time]: Left
      end

      # False in a forked child.
      def ours? = @parent == Process.pid

      # question: a method of Foreign, which takes a PID or a Place first. Returns what it returns;
      # an IO at the end of an Array is the same open file here. Raises Refused.
      def ask(question, subject, *arguments)
        held(subject)&.then { |refused| raise refused }
        put([question, [subject], *arguments])
        kind, value, with_file = take
        raise Refused.new(*value) if kind == :refused

        with_file ? [*value, @socket.recv_io(File, "rb")] : value
      rescue Late, Ended => e
        raise lost(subject, e)
      end

      # The same question about several: a value or a Refused for each, in their order; from that
      # moment on for no more of them.
      def ask_each(question, subjects, limit: nil)
        answers = []
        while answers.size < subjects.size && (limit.nil? || now < limit)
          answers.concat(some(question, subjects.drop(answers.size)))
        end
        answers
      end

      private

      # Answers about the first of them, one at least: those that the child gives within a while.
      def some(question, subjects)
        held(subjects.first)&.then { |refused| return [refused] }
        subjects = subjects.take_while { |subject| held(subject).nil? }
        answers = []
        put([question, subjects])
        while answers.size < subjects.size && (answer = take) != REST
          kind, value = answer
          answers << (kind == :value ? value : Refused.new(*value))
        end
        answers
      rescue Late, Ended => e
        answers << lost(subjects[answers.size], e)
      end

      # A Refused where a child that was killed has not ended, else nil. subject: as #ask takes it;
      # of a Place the process was read before.
      def held(subject)
        return if @left.empty?

        @left.select! { |_, one| one.thread.alive? }
        pid = pid_of(subject)
        return late(pid) if @left.key?(identity(subject))
        return unless subject.is_a?(Integer)

        owner = Foreign.owner(pid)
        return if @left.count { |_, one| one.owner == owner } < MOST_LEFT

        Refused.new(:slow,
                    "process #{pid}: other processes of its user are not read, and it is left out with them")
      end

      # Ends the child, which did not answer about that one. Returns the Refused.
      def lost(subject, error)
        thread = stop
        pid = pid_of(subject)
        @left[identity(subject)] = Left.new(thread, Foreign.owner(pid))
        error.is_a?(Late) ? late(pid) : Refused.new(:slow, "process #{pid}: its reader ended")
      end

      def late(pid) = Refused.new(:slow, "process #{pid}: it was not read within #{LIMIT.round} s")

      def pid_of(subject) = subject.is_a?(Integer) ? subject : subject.pid

      def identity(subject)
        subject.is_a?(Integer) ? [subject, Foreign.born(subject)] : [subject.pid, subject.born]
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

      # The next frame.
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

      # What is slow for want of a CPU does not hang, nor what has used one since it was looked at
      # last.
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
        @thread = Process.detach(@pid)
        other.close
      end

      # Returns the thread that waits for the end of the child.
      def stop
        Process.kill(:KILL, @pid)
        @thread
      rescue Errno::ESRCH
        @thread
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
          return unless head&.bytesize == 4

          bytes = socket.read(head.unpack1("L"))
          Marshal.load(bytes) # rubocop:disable Security/MarshalLoad -- from our own child
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
            reply(question, subjects, arguments)
          end
        ensure
          exit!(0)
        end

        private

        def prepare
          Process.setproctitle("probescope: reader of processes")
          %w[INT TERM HUP].each { |name| trap(name, "IGNORE") }
          # Whoever reads what the parent prints waits for the end of all that have it open.
          $stdin.reopen(File::NULL)
          [$stdout, $stderr].each { |io| io.reopen(File::NULL, "w") }
          Descriptors.keep([@socket])
          # Whatever is read is bytes, and becomes text where it is handed out.
          Encoding.default_external = Encoding::BINARY
          Process.setrlimit(:AS, (File.read("/proc/self/statm").to_i * 4096) + Bounds::READER_BYTES)
        end

        # Each answer by itself, so that the parent knows at which process the child hangs. After a
        # while, that there are no more.
        def reply(question, subjects, arguments)
          began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
          subjects.each_with_index do |subject, i|
            if i.positive? && Process.clock_gettime(Process::CLOCK_MONOTONIC) - began > ROW
              return Frames.write(@socket, REST)
            end

            hand_out(answer(question, subject, arguments))
          end
        end

        def hand_out(answer)
          file = file(answer)
          Frames.write(@socket, answer)
          return unless file

          @socket.send_io(file)
          file.close
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
          [:refused, [:denied, "process #{pid} may not be read",
                      "run the command as root, or as a user who may use sudo"]]
        rescue Errno::ENOENT, Errno::ESRCH, EOFError
          [:refused, [:gone, "process #{pid} has just ended",
                      "`probescope ps` lists the processes that can be traced"]]
        rescue NoMemoryError
          [:refused, [:slow, "process #{pid}: to read it takes too much memory"]]
        rescue StandardError, SystemStackError => e
          [:refused, [:malformed, "process #{pid}: it cannot be read (#{e.class} at #{e.backtrace&.first})"]]
        end
      end
    end
  end
end
