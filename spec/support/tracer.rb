# frozen_string_literal: true

module Support
  # A running bpftrace. The semaphores show that it has attached, because its own messages differ
  # between versions.
  class Tracer < Child
    # program: a file, or the text of a program. pid: nil to trace by path, with the library in the
    # text.
    def initialize(program, pid: nil, args: [], options: [], env: {})
      what = File.file?(program) ? [program] : ["-e", program]
      limit = pid ? ["-p", pid.to_s] : []
      super("bpftrace", *options, *limit, *what, *args, env: Support.plain_env.merge(env))
    end

    # Waits until the process's semaphores of these probes are up and its hooks are in.
    def attached(target, *probes)
      probes.each do |probe|
        await("#{probe} raised by #{self}") do
          raise "bpftrace ended\n#{self}" unless alive?

          target.info.semaphore(probe).positive?
        end
      end
      target.await_on(*probes)
      self
    end

    # bpftrace 0.17 can lose a signal that comes while it attaches, so the signal is sent again.
    def stop(name = :TERM, within: 60)
      sent = nil
      await("the end of #{self}", within: within) do
        if sent.nil? || monotonic - sent > 3
          sent = monotonic
          signal(name)
        end
        !alive?
      end
      wait(within: within)
    end

    # Ends the tracer as Ctrl-C does. Returns its output, with the maps at the end.
    def finish(within: 60)
      stop(:INT, within: within)
      out
    end
  end
end
