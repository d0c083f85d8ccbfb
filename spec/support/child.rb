# frozen_string_literal: true

module Support
  # A started process whose output is read as it comes. It has its own process group, so #kill_all
  # also ends its forked children.
  class Child
    include Await

    attr_reader :pid

    # env replaces the whole environment. stdin: true gives a pipe to write to.
    def initialize(*command, env: Support.plain_env, stdin: false, chdir: Support::ROOT)
      @command = command.join(" ").b.force_encoding(Encoding::UTF_8).scrub
      @lines = { out: +"", err: +"" }
      input, @stdin = stdin ? IO.pipe : [File::NULL, nil]
      readers = { out: IO.pipe, err: IO.pipe }
      @pid = Process.spawn(env, *command, in: input, out: readers[:out][1], err: readers[:err][1],
                                          unsetenv_others: true, pgroup: true, chdir: chdir)
      input.close if stdin
      readers.each_value { |_, writer| writer.close }
      @threads = readers.map { |name, (reader, _)| follow(name, reader) }
    end

    def out = @lines[:out].dup
    def err = @lines[:err].dup
    def to_s = "#{@command} (pid #{@pid}, #{@poll || "running"})\n--- stdout\n#{out}--- stderr\n#{err}---"

    # Returns for a failed example the place and the kernel's state of each thread.
    def state
      "#{self}\n" + Dir["/proc/#{@pid}/task/*"].map do |task|
        name, wchan, call, stat = %w[comm wchan syscall stat].map do |file|
          File.read("#{task}/#{file}").strip
        end
        cpu = stat.rpartition(")").last.split.values_at(0, 11, 12).join(" ")
        "thread #{File.basename(task)} #{name}: #{cpu}, in #{wchan}, system call #{call}\n"
      rescue SystemCallError
        nil
      end.join
    end

    def puts(line)
      @stdin.puts(line)
      @stdin.flush
    end

    def close_stdin = @stdin.close

    # Returns the MatchData of the first matching line of stdout (stream: :err for stderr).
    def await_line(pattern, within: 60, stream: :out)
      await("a line like #{pattern.inspect}", within: within) do
        complete = @lines[stream][/\A.*\n/m].to_s
        complete.each_line.lazy.filter_map { |line| line.match(pattern) }.first || check_alive(pattern)
      end
    rescue Timeout => e
      raise Timeout, "#{e.message}\n#{self}"
    end

    def alive? = poll.nil?

    def signal(name)
      Process.kill(name, @pid) unless @poll # its number may be reused by now
    rescue Errno::ESRCH
      nil
    end

    # Waits for the end of the process and of its output. Returns the Process::Status.
    def wait(within: 60)
      await("the end of #{self}", within: within) { poll }
      @threads.each { |thread| thread.join(5) }
      @poll
    end

    # Sends the signal, waits, and returns the Process::Status.
    def stop(name = :TERM, within: 30)
      signal(name)
      wait(within: within)
    end

    # Kills the process and all its children, for clean-up.
    def kill_all
      kill_group
      wait
      @stdin&.close unless @stdin&.closed?
    end

    private

    # The kernel does not reuse the number of a group with members. After this process is reaped, a
    # process with its number is another one.
    def kill_group
      Process.kill(:KILL, -@pid) unless @poll && File.exist?("/proc/#{@pid}")
    rescue Errno::ESRCH
      nil
    end

    def follow(name, reader)
      Thread.new do
        loop { @lines[name] << reader.readpartial(65_536).force_encoding(Encoding::UTF_8) }
      rescue EOFError
        reader.close
      end
    end

    # Returns the Process::Status if the process has ended.
    def poll = @poll ||= Process.wait2(@pid, Process::WNOHANG)&.last

    def check_alive(pattern)
      return if poll.nil? || @threads.any?(&:alive?)

      unless out.match?(pattern) || err.match?(pattern)
        raise "ended before a line like #{pattern.inspect}\n#{self}"
      end
    end
  end
end
