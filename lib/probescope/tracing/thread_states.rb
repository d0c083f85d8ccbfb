# frozen_string_literal: true

module Probescope
  module Tracing
    # What /proc tells of the threads of a process and of its open files. A thread that sleeps for
    # the whole interval has no event, so the kernel's tracepoints do not tell of it.
    module ThreadStates
      # The most threads and open files that are read.
      MOST = 4096
      FILES = {"socket:" => "socket", "pipe:" => "pipe", "anon_inode:[timerfd" => "timer",
               "anon_inode:[eventfd" => "event", "/" => "file"}.freeze

      # threads: {thread id => [CPU time in ns, [number and first two arguments of the system call in
      # which it is]]}; nil for the call where it is in none, or cannot be read. more: how many other
      # threads there are. files: {descriptor => kind}.
      State = Struct.new(:threads, :more, :files)

      module_function

      def of(pid)
        ids = Dir.children("/proc/#{pid}/task")
        threads = ids.first(MOST).filter_map { |id| [id.to_i, thread("/proc/#{pid}/task/#{id}")] }.to_h
        State.new(threads.compact, [ids.size - MOST, 0].max, files(pid))
      rescue SystemCallError # it has ended
        State.new({}, 0, {})
      end

      # What holds for the time from one State to a later one, as plain data. threads: those of both,
      # [[thread id, CPU time meanwhile, call or nil], ...]. files: [[descriptor, kind], ...] of those
      # that were the same, or open in one of them.
      def between(before, after)
        same = after.threads.filter_map do |id, (ran, call)|
          ran_before, call_before = before.threads[id]
          [id, ran - ran_before, (call if call == call_before)] if ran_before
        end
        changed = before.files.reject { |fd, kind| after.files.fetch(fd, kind) == kind }.keys
        {threads: same, more_threads: after.more,
         files: before.files.merge(after.files).except(*changed).to_a}
      end

      def thread(folder)
        [File.read("#{folder}/schedstat").split.first.to_i, call("#{folder}/syscall")]
      rescue SystemCallError # it has ended, or the kernel does not count it
        nil
      end

      # "running", "-1 SP PC" outside of a system call, or the number and six arguments.
      def call(path)
        number, first, second, * = File.read(path).split
        [number.to_i, first.hex, second.hex] if number&.match?(/\A\d+\z/)
      rescue SystemCallError
        nil
      end

      def files(pid)
        folder = "/proc/#{pid}/fd"
        Dir.children(folder).first(MOST).filter_map do |fd|
          kind = kind("#{folder}/#{fd}")
          [fd.to_i, kind] if kind
        end.to_h
      rescue SystemCallError
        {}
      end

      # The name itself is of no interest, and is not passed on.
      def kind(path)
        name = File.readlink(path).b
        FILES.find { |start, _| name.start_with?(start) }&.last || "other"
      rescue SystemCallError
        nil
      end
    end
  end
end
