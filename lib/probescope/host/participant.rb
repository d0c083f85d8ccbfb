# frozen_string_literal: true

require "time"
require_relative "clock"
require_relative "error"
require_relative "refused"
require_relative "run_delay"
require_relative "target"

module Probescope
  module Host
    # One process of a trace: what it says about itself while it is traced. What it can no longer be
    # asked for reads as its end; no method raises when the process is gone.
    class Participant
      # flushed_at, began_at: when the last flush was seen, and the first one of this trace, which
      # begins the interval. refused: the Refused since which it cannot be read any more; nil where
      # it has ended.
      attr_reader :target, :snapshot, :flushes, :flushed_at, :began_at, :refused

      # Of the states that a process tells, those in which a probe never fires.
      NEVER = %w[refused unsupported].freeze
      # Ends each interval, and is served wherever the library is.
      ALWAYS = "stats__done"
      # The watcher thread's name.
      WATCHER = "probescope"
      UNLIMITED = {probes: {}, functions: nil}.freeze
      # So many hundredths of a second of CPU time, and a process ran.
      RAN_TICKS = 2
      WHY_NOT = "(a long call into C, or many functions: -d 60 waits for longer)"
      # Whose CPU time is read.
      MOST_THREADS = 4096

      # target: Target. probes: names of the probes that are traced. some: whether a part of them is
      # worth tracing. Raises Error when it does not serve one of them, with `some` any of them, or
      # when it has just ended.
      def initialize(target, probes, some: false)
        @target = target
        @probes = probes
        @some = some
        @created_ns = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
        @snapshot = target.snapshot
        @semaphores = probes.map { |name| served(name).fetch(:semaphore) }
        @before = target.tracers(@semaphores)
        @flushes = @snapshot[:flushes]
        @cpu_before = cpu
        @folder = folder
      end

      def pid = target.pid

      def alive?
        @ended ||= !target.alive?
        !@ended
      end

      # True when somebody listens to each of the probes.
      def raised? = tracers.all?(&:positive?)

      # True when somebody listens to any of them.
      def heard? = tracers.any?(&:positive?)

      # True when somebody listened before: the kernel counts places and not tracers, so that ours
      # adds nothing.
      def shared? = @before.any?(&:positive?)

      # [CPU time that looking took, CPU time of the process], in ns, since its interval began; nil
      # where it does not tell.
      def looking
        @looked.zip(@looked_before).map { |now, before| now - before } if @looked && @looked_before
      end

      # Looks at the flush counters of these. Returns those whose counter has moved since the last
      # look.
      def self.look(participants, now)
        looks = Target.counters(participants.map(&:target))
        participants.zip(looks).filter_map { |one, counters| one if one.take(counters, now) }
      end

      def look(now) = self.class.look([self], now).any?

      # counters: as Target.counters has them.
      def take(counters, now)
        return lost(counters) if counters.is_a?(Refused)

        current, looked = counters
        return false if current == @flushes

        @flushes = current
        @flushed_at = now
        @began_at ||= now
        @looked = looked
        @looked_before ||= @looked
        @delays_before ||= RunDelay.of(pid, MOST_THREADS)
        true
      end

      # True when the process, now that it is asked, will not serve one of the probes, or with
      # `some` any.
      def refuses?
        never = @snapshot[:probes].slice(*@probes).select { |_, probe| NEVER.include?(probe[:state]) }
        refused = never.keys - taken_out.keys
        @some ? (@probes - refused - [ALWAYS]).empty? : refused.any?
      end

      # Forgets the flushes so far, but for what the process says of its probes.
      def begin(now)
        look(now)
        keep
        @flushed_at = @began_at = @looked_before = @delays_before = nil
        @cpu_before = cpu
      end

      def flushed? = !@flushed_at.nil?

      # Keeps how the process stands, for the command. Returns true when a probe has another state
      # than before.
      def keep
        before = states
        @snapshot = target.snapshot
        @waited_ns ||= waited_ns if flushed?
        states != before
      rescue Refused => e
        e.kind != :busy && lost(e)
      end

      # {name => state} of the probes that are traced.
      def states = snapshot[:probes].slice(*@probes).transform_values { |probe| probe[:state] }

      # {name => why} of those that tell of a part alone.
      def in_part
        degraded = snapshot[:probes].slice(*@probes).select { |_, probe| probe[:state] == "degraded" }
        degraded.transform_values { |probe| probe[:reason] }
      end

      # Says why nothing is known of it, should that be so. To be asked while bpftrace is still
      # attached.
      def absence
        @run_delay_ns ||= RunDelay.between(@delays_before, RunDelay.of(pid, MOST_THREADS)) if @delays_before
        @absence ||= flushed? ? short : silence
      end

      # Does stats__done tell up to when its rows count? An older library has something else there.
      def tells_of_cut? = !snapshot[:cut].nil?

      # For the command, as plain data.
      def to_h
        {pid: pid, folder: @folder, ended: !alive?, flushed: flushed?, absence: absence,
         waited_ns: @waited_ns, run_delay_ns: @run_delay_ns,
         probes: snapshot[:probes].slice(*@probes), serves: serves,
         taken_out: taken_out, tells_of_taken_out: !snapshot[:overhead_limit].nil?, note: snapshot[:note],
         tells_of_looking: !snapshot[:looking_ns].nil?, tells_of_cut: tells_of_cut?,
         tells_of_requests: snapshot[:flags].include?(:requests), **snapshot.slice(:runtime, :version)}
      end

      # Probes whose hooks it took out in this trace for taking too much: {name => ns of
      # CLOCK_MONOTONIC}. An older library tells none.
      def taken_out
        out = snapshot[:probes].slice(*@probes).transform_values { |probe| probe[:out_ns] }
        out.select { |_, ns| ns && ns > @created_ns }
      end

      # What PROBESCOPE_MAX_OVERHEAD has taken out: {probes: {name => ns of CLOCK_MONOTONIC},
      # functions: why some are not counted, or nil}.
      def limited
        probes = snapshot[:probes].slice(*@probes)
        functions = probes.each_value.find do |probe|
          probe[:state] == "degraded" && probe[:reason].include?("PROBESCOPE_MAX_OVERHEAD")
        end
        {probes: probes.transform_values { |probe| probe[:out_ns].to_i }.select { |_, ns| ns.positive? },
         functions: functions&.fetch(:reason)}
      end

      # That, for people.
      def limits_in_words
        limited => {probes:, functions:}
        offset = Clock.monotonic_offset
        said = probes.map do |name, ns|
          time = Clock.at(ns, offset).iso8601(3)
          "process #{pid}: #{name} counts until #{time} alone: #{snapshot[:probes][name][:reason]}"
        end
        said << "process #{pid}: #{functions}" if functions
        said.empty? ? ["process #{pid}: all hooks are in again"] : said
      end

      private

      # From the attach of the last probe until the hooks were in. nil where the library does not
      # tell.
      def waited_ns
        asked, hooks_in = snapshot.values_at(:asked_ns, :hooks_in_ns).map(&:to_i)
        # Hooks that another tracer had asked for before were in already.
        [hooks_in - [asked, @created_ns].max, 0].max if hooks_in.positive?
      end

      def short = alive? ? "its first interval was not over" : "it ended before its first interval did"

      def silence
        return "it ended before its hooks were in" unless alive?

        keep
        return "its watcher does not run" unless snapshot[:flags].include?(:watcher)
        return "it is stopped" if %w[T t].include?(state)
        return "its hooks were in, but it sent no statistics" if snapshot[:hooks_in_ns].to_i.positive?

        why = idle? ? "no thread of it ran" : "it ran, and let none of them in #{WHY_NOT}"
        "its hooks never came in: #{why}"
      end

      def idle? = cpu - @cpu_before < RAN_TICKS

      # Of the main thread: "R", "S", "T" (stopped), ...
      def state
        File.read("/proc/#{pid}/stat").rpartition(") ").last[0]
      rescue SystemCallError
        nil
      end

      # In which it runs; nil where nobody may know.
      def folder
        File.readlink("/proc/#{pid}/cwd").force_encoding(Encoding::UTF_8).scrub
      rescue SystemCallError
        nil
      end

      # CPU time of its threads in ticks, without the watcher's.
      def cpu
        Dir.each_child("/proc/#{pid}/task").first(MOST_THREADS).sum do |thread|
          name, _, fields = File.read("/proc/#{pid}/task/#{thread}/stat").partition("(").last.rpartition(") ")
          name == WATCHER ? 0 : fields.split.values_at(11, 12).sum(&:to_i)
        end
      rescue SystemCallError
        0
      end

      # Names of all the probes that its runtime can serve.
      def serves = snapshot[:probes].reject { |_, probe| probe[:state] == "unsupported" }.keys

      # One count for each probe; none when the process has ended.
      def tracers
        target.tracers(@semaphores)
      rescue Refused => e
        lost(e)
        @semaphores.map { 0 }
      end

      # What cannot be read any more is over, as what has ended. Returns false.
      def lost(refused)
        @ended = true
        return false if refused.kind == :gone

        @refused = refused
        @absence = "it cannot be read any more (#{refused.message})"
        false
      end

      # What it never fires need not be waited for.
      def served(name)
        probe = @snapshot[:probes][name] or
          raise Error.new("the library in process #{pid} (#{@snapshot[:library]}) " \
                          "does not have the probe #{name}",
                          "update it there")
        return probe unless NEVER.include?(probe[:state]) && refuses?

        raise Error.new("process #{pid} does not serve #{name}: #{probe[:reason]}",
                        "probescope doctor -p #{pid}")
      end
    end
  end
end
