# frozen_string_literal: true

require_relative "error"

module Probescope
  module Host
    # One process of a trace: what it says about itself while it is traced. What it can no longer be asked for reads as its
    # end; no method raises when the process is gone.
    class Participant
      attr_reader :target, :snapshot, :flushes, :flushed_at

      # Of the states that a process tells, those in which a probe never fires.
      NEVER = %w[refused unsupported].freeze

      # target: Target. probes: names of the probes that are traced. Raises Error when it does not serve one of them, or when it
      # has just ended.
      def initialize(target, probes)
        @target = target
        @probes = probes
        @snapshot = target.info.snapshot
        @semaphores = probes.map { |name| served(name).fetch(:semaphore) }
        @before = tracers
        @flushes = target.info.flushes
      rescue SystemCallError, EOFError
        raise Error.new("process #{target.pid} has just ended", "`probescope ps` lists the processes that can be traced")
      end

      def pid = target.pid

      def alive? = !@ended && (target.alive? || !ended)

      # True when somebody listens to each of the probes.
      def raised? = tracers.all?(&:positive?)

      # True when somebody listens to any of them.
      def heard? = tracers.any?(&:positive?)

      # True when somebody listened before: the kernel counts places and not tracers, so that ours adds nothing.
      def shared? = @before.any?(&:positive?)

      # Looks at the flush counter. Returns true when it has moved since the last look.
      def look(now)
        current = target.info.flushes
        return false if current == @flushes

        @flushes = current
        @flushed_at = now
        true
      rescue SystemCallError, IOError
        !ended
      end

      # True when the process, now that it is asked, will not serve one of the probes.
      def refuses? = @snapshot[:probes].slice(*@probes).any? { |_, probe| NEVER.include?(probe[:state]) }

      # Forgets the flushes so far.
      def begin(now)
        look(now)
        @flushed_at = nil
      end

      def flushed? = !@flushed_at.nil?

      # Keeps how the process stands, for the command.
      def keep
        @snapshot = target.info.snapshot
      rescue SystemCallError, IOError, Error
        nil
      end

      # For the command, as plain data.
      def to_h
        {pid: pid, ended: !alive?, flushed: flushed?, probes: snapshot[:probes].slice(*@probes), serves: serves,
         tells_of_requests: snapshot[:flags].include?(:requests), **snapshot.slice(:runtime, :version)}
      end

      private

      # Names of all the probes that its runtime can serve.
      def serves = snapshot[:probes].reject { |_, probe| probe[:state] == "unsupported" }.keys

      # One count for each probe; none when the process has ended.
      def tracers
        @semaphores.map { |address| target.info.tracers(address) }
      rescue SystemCallError, IOError
        ended
        @semaphores.map { 0 }
      end

      # Of workers that come and go there may be more than files that can be open.
      def ended
        target.info.close
        @ended = true
      end

      # What it never fires need not be waited for.
      def served(name)
        probe = @snapshot[:probes][name] or
          raise Error.new("the library in process #{pid} (#{@snapshot[:library]}) does not have the probe #{name}",
                          "update it there")
        return probe unless NEVER.include?(probe[:state])

        raise Error.new("process #{pid} does not serve #{name}: #{probe[:reason]}", "probescope doctor -p #{pid}")
      end
    end
  end
end
