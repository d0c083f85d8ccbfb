# frozen_string_literal: true

require "io/wait"
require "socket"
require_relative "bounds"
require_relative "deadline"
require_relative "descriptors"
require_relative "foreign"
require_relative "identity"
require_relative "refused"
require_relative "run_delay"

module Probescope
  module Tracing
    # Reads foreign processes (Foreign) in a child, one question after the other. Each question gets
    # an answer or a Refused within seconds, whatever the process does: a child that does not answer
    # is killed, and the next question starts a new one.
    #
    # A child that waits for a file on FUSE may survive its KILL until that file answers, so nothing
    # waits for the child's end. Until the child has ended, its process is not read again: each
    # further question would leave one more such child behind.
    class Reader
      # LIMIT: seconds that an answer may take. LONGEST: seconds that it may take while the child uses
      # a CPU. While the child waits for a CPU, the answer may take longer (Deadline).
      LIMIT = 1.0
      LONGEST = 5.0
      # The most killed children that are still waiting for processes of one user. Beyond that, no
      # other process of that user is read.
      MOST_LEFT = 4

      # A killed child. thread: waits for its end. owner: the user of the process that it read.
      Left = Struct.new(:thread, :owner)
      # The child's answer when there was no time for the remaining subjects.
      REST = [:rest].freeze
      Late = Class.new(StandardError)
      Ended = Class.new(StandardError)

      class << self
        # Asks the reader of this process, see #ask.
        def ask(...) = ours.ask(...)

        # See #ask_each.
        def ask_each(...) = ours.ask_each(...)

        # See #run_delay.
        def run_delay = ours.run_delay

        # Returns a Deadline for requests to the reader of this process.
        def deadline(seconds) = Deadline.new(seconds) { run_delay }

        private

        def ours
          @reader = new unless @reader&.ours?
          @reader
        end
      end

      def initialize
        @parent = Process.pid
        @left = {} # [pid, start time] => Left
        @delayed = 0.0 # seconds that killed children waited for a CPU
      end

      # False in a forked child, which must not use its parent's reader.
      def ours? = @parent == Process.pid

      # question: a method of Foreign, whose first parameter is a PID or a Place. Returns that
      # method's value; an IO at the end of an Array arrives as a File on the same open file. Raises
      # Refused.
      def ask(question, subject, *arguments)
        held(subject)&.then { |refused| raise refused }
        put([question, [subject], *arguments])
        kind, value, with_file = take
        raise Refused.new(*value) if kind == :refused

        with_file ? [*value, @socket.recv_io(File, "rb")] : value
      rescue Late, Ended => e
        raise lost(subject, e)
      end

      # Asks the same question about several subjects. Returns a value or a Refused for each, in
      # their order. limit: a Deadline, after which the remaining subjects get no answer.
      def ask_each(question, subjects, *arguments, limit: nil)
        answers = []
        until answers.size == subjects.size || limit&.passed?
          answers.concat(some(question, subjects.drop(answers.size), arguments))
        end
        answers
      end

      # The seconds that the calling thread and the children have waited for a CPU so far, 0 where
      # the kernel does not count them (CONFIG_SCHED_INFO).
      def run_delay = @delayed + RunDelay.seconds("thread-self") + (@socket ? RunDelay.seconds(@pid) : 0.0)

      private

      # Asks about the first subjects, at least one, until the child stops answering.
      def some(question, subjects, arguments)
        held(subjects.first)&.then { |refused| return [refused] }
        subjects = subjects.take_while { |subject| held(subject).nil? }
        answers = []
        put([question, subjects, *arguments])
        while answers.size < subjects.size && (answer = take) != REST
          kind, value = answer
          answers << (kind == :value ? value : Refused.new(*value))
        end
        answers
      rescue Late, Ended => e
        answers << lost(subjects[answers.size], e)
      end

      # A Refused while a killed child still waits for this process or for others of its user, else
      # nil. subject: as in #ask. A Place was read before, so only the process itself is checked.
      def held(subject)
        return if @left.empty?

        @left.select! { |_, one| one.thread.alive? }
        pid = pid_of(subject)
        return late(pid) if @left.key?(identity(subject))
        return unless subject.is_a?(Integer)

        owner = Identity.owner(pid)
        return if @left.count { |_, one| one.owner == owner } < MOST_LEFT

        Refused.new(:slow,
                    "process #{pid}: other processes of its user are not read, and it is left out with them")
      end

      # Kills the child, which did not answer about this subject. Returns the Refused.
      def lost(subject, error)
        thread = stop
        pid = pid_of(subject)
        @left[identity(subject)] = Left.new(thread, Identity.owner(pid))
        error.is_a?(Late) ? late(pid) : Refused.new(:slow, "process #{pid}: its reader ended")
      end

      def late(pid) = Refused.new(:slow, "process #{pid}: it was not read within #{LIMIT.round} s")

      def pid_of(subject) = subject.is_a?(Integer) ? subject : subject.pid

      def identity(subject)
        subject.is_a?(Integer) ? [subject, Identity.born(subject)] : [subject.pid, subject.born]
      end

      # Starts a new child when the old one was killed meanwhile.
      def put(message)
        start unless @socket
        Frames.write(@socket, message)
      rescue SystemCallError
        stop
        start
        Frames.write(@socket, message)
      end

      # Returns the next frame. Raises Late or Ended.
      def take
        moved = now
        longest = nil
        until @socket.wait_readable(LIMIT / 4)
          longest ||= Deadline.new(LONGEST - (LIMIT / 4)) { run_delay }
          moved = now if running?
          raise Late if now - moved >= LIMIT || longest.passed?
        end
        Frames.read(@socket) or raise Ended
      rescue SystemCallError
        raise Ended
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      # True while the child waits for a CPU, or has used one since the last call: then it is slow,
      # but does not hang.
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

      # Kills the child. Returns the thread that waits for its end.
      def stop
        @delayed += RunDelay.seconds(@pid)
        Process.kill(:KILL, @pid)
        @thread
      rescue Errno::ESRCH
        @thread
      ensure
        @socket.close
        @socket = nil
      end

      # Sends and receives Ruby objects over a socket.
      module Frames
        module_function

        def write(socket, object)
          bytes = Marshal.dump(object)
          socket.write([bytes.bytesize].pack("L"), bytes)
        end

        # Returns nil at the end of the stream.
        def read(socket)
          head = socket.read(4)
          return unless head&.bytesize == 4

          bytes = socket.read(head.unpack1("L"))
          Marshal.load(bytes) # rubocop:disable Security/MarshalLoad -- from our own child
        rescue ArgumentError, TypeError, EOFError # the child was killed in the middle of a frame
          nil
        end
      end

      # The child process. It has only its socket open, and ends when the socket is closed.
      class Child
        # Seconds after which a child stops answering, although some subjects are left.
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
          # A reader of the parent's output waits until every process that has the pipe open has
          # ended.
          $stdin.reopen(File::NULL)
          [$stdout, $stderr].each { |io| io.reopen(File::NULL, "w") }
          Descriptors.keep([@socket])
          # All data is read as bytes, and becomes text when it is returned.
          Encoding.default_external = Encoding::BINARY
          Process.setrlimit(:AS, (File.read("/proc/self/statm").to_i * 4096) + Bounds::READER_BYTES)
        end

        # Sends each answer separately, so that the parent knows at which process the child hangs.
        # After ROW seconds, sends REST instead.
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

        # Takes an open file out of an answer and leaves a mark; the file is sent separately.
        def file(answer)
          kind, value = answer
          return unless kind == :value && value.is_a?(Array) && value.last.is_a?(IO)

          answer << true
          value.pop
        end

        # Returns [:value, ...] or [:refused, arguments of Refused.new]. Raises nothing.
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
