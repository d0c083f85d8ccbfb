# frozen_string_literal: true

require "time"
require_relative "clock"
require_relative "error"
require_relative "probed_process"
require_relative "refused"
require_relative "run_delay"
require_relative "thread_states"
require_relative "ticked_time"

module Probescope
  module Tracing
    # One process of a trace, and what it reports while it is traced. A process that can no longer
    # be read counts as ended; no method raises when the process has ended.
    class Member
      # flushed_at: when the last flush was seen. began_at: when the first flush of this trace was
      # seen, which begins the interval. refused: the Refused after which the process can no longer
      # be read; nil where the process has ended.
      # entry: globs of the package that was started (EntryPoint), nil for a trace without call paths.
      attr_reader :process, :snapshot, :flushes, :flushed_at, :began_at, :refused, :entry

      # States of a probe in which it never fires.
      NEVER = %w[refused unsupported].freeze
      # The probe that ends each interval. Every process with the library serves it.
      ALWAYS = "stats__done"
      # The probe of call paths.
      PATHS = "stack__frame"
      # The name of the watcher thread.
      WATCHER = "probescope"
      UNLIMITED = {probes: {}, functions: nil}.freeze
      # A process has run when it used this many ticks (1/100 s) of CPU time.
      RAN_TICKS = 2
      WHY_NOT = "(a long call into C, or many functions: -d 60 waits for longer)"
      # The most threads whose CPU time is read.
      MOST_THREADS = 4096

      # The process does not serve a probe.
      class Unserved < Error
        attr_reader :runtime

        def initialize(runtime, message, next_step)
          super(message, next_step)
          @runtime = runtime
        end
      end

      # process: ProbedProcess. probes: names of the traced probes. some: whether the process may
      # serve only some of them. waits: whether the trace tells of threads that sleep. Raises Error
      # when the process does not serve one of them (with `some`: any of them), or has just ended.
      def initialize(process, probes, some: false, waits: false)
        @process = process
        @probes = probes
        @some = some
        @waits = waits
        @created_ns = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
        @snapshot = process.snapshot
        @semaphores = probes.map { |name| served(name).fetch(:semaphore) }
        @before = process.tracers(@semaphores)
        @flushes = @snapshot[:flushes]
        @cpu_before = cpu
        @folder = folder
        @entry = process.entry_point if probes.include?(PATHS)
        @quiet = {}
      end

      def pid = process.pid

      def alive?
        @ended ||= !process.alive?
        !@ended
      end

      # True when a tracer listens to each of the probes.
      def raised? = tracers.all?(&:positive?)

      # True when a tracer listens to any of them.
      def heard? = tracers.any?(&:positive?)

      # True when another tracer listened before this trace. The kernel counts places and not
      # tracers, so this trace then adds nothing to the count.
      def shared? = @before.any?(&:positive?)

      # [CPU time that looking took, CPU time of the process], in ns since the interval began; nil
      # where the library does not report it.
      def looking
        @looked.zip(@looked_before).map { |now, before| now - before } if @looked && @looked_before
      end

      # Reads the flush counters of these Members. Returns those that have flushed since the
      # last call.
      def self.look(members, now)
        looks = ProbedProcess.counters(members.map(&:process))
        members.zip(looks).filter_map { |one, counters| one if one.take(counters, now) }
      end

      def look(now) = self.class.look([self], now).any?

      # counters: as in ProbedProcess.counters.
      def take(counters, now)
        return lost(counters) if counters.is_a?(Refused)

        current, looked, ticked = counters
        return false if current == @flushes

        @flushes = current
        @flushed_at = now
        @began_at ||= now
        @looked = looked
        @looked_before ||= @looked
        @ticked = ticked
        @ticked_before ||= @ticked
        @delays_before ||= RunDelay.of(pid, MOST_THREADS)
        @kernel_ticked_before ||= TickedTime.of(pid)
        @threads_before ||= ThreadStates.of(pid) if @waits
        true
      end

      # True when the process refuses a probe (with `some`: every probe) after a tracer has
      # attached.
      def refuses?
        never = @snapshot[:probes].slice(*@probes).select { |_, probe| NEVER.include?(probe[:state]) }
        refused = never.keys - taken_out.keys
        @some ? (@probes - refused - [ALWAYS]).empty? : refused.any?
      end

      # Forgets the flushes so far, and reads the states of the probes again.
      def begin(now)
        look(now)
        keep
        @flushed_at = @began_at = @looked_before = nil
        @delays_before = @ticked_before = @kernel_ticked_before = @threads_before = nil
        @cpu_before = cpu
      end

      def flushed? = !@flushed_at.nil?

      # Saves a snapshot of the process for the command. Returns true when the state of a probe has
      # changed.
      def keep
        before = states
        @snapshot = process.snapshot
        @waited_ns ||= waited_ns if flushed?
        states != before
      rescue Refused => e
        e.kind != :busy && lost(e)
      end

      # {name => state} of the traced probes.
      def states = snapshot[:probes].slice(*@probes).transform_values { |probe| probe[:state] }

      # {name => reason} of the probes that report only a part of the events.
      def in_part
        degraded = snapshot[:probes].slice(*@probes).select { |_, probe| probe[:state] == "degraded" }
        degraded.transform_values { |probe| probe[:reason] }
      end

      # The reason why the process has no interval, or nil. Call it while bpftrace is still
      # attached.
      def absence
        measure_scheduling
        @absence ||= flushed? ? short : silence
      end

      # Whether stats__done carries the time up to which its rows count. In an older library that
      # field holds something else.
      def tells_of_cut? = !snapshot[:cut].nil?

      # For the command, as plain data.
      def to_h
        {pid: pid, folder: @folder, entry: @entry, ended: !alive?, flushed: flushed?, absence: absence,
         waited_ns: @waited_ns, run_delay_ns: @run_delay_ns, missed_by_ticks: @missed_by_ticks,
         probes: snapshot[:probes].slice(*@probes), serves: serves,
         taken_out: taken_out, tells_of_taken_out: !snapshot[:overhead_limit].nil?, note: snapshot[:note],
         tells_of_looking: !snapshot[:looking_ns].nil?, tells_of_cut: tells_of_cut?,
         tells_of_requests: snapshot[:flags].include?(:requests), **snapshot.slice(:runtime, :version),
         **@quiet}
      end

      # Probes whose hooks the process removed during this trace because of their overhead: {name =>
      # ns of CLOCK_MONOTONIC}. Empty for an older library, which does not report them.
      def taken_out
        out = snapshot[:probes].slice(*@probes).transform_values { |probe| probe[:out_ns] }
        out.select { |_, ns| ns && ns > @created_ns }
      end

      # What PROBESCOPE_MAX_OVERHEAD has removed: {probes: {name => ns of CLOCK_MONOTONIC},
      # functions: the reason why some functions are not counted, or nil}.
      def limited
        probes = snapshot[:probes].slice(*@probes)
        functions = probes.each_value.find do |probe|
          probe[:state] == "degraded" && probe[:reason].include?("PROBESCOPE_MAX_OVERHEAD")
        end
        {probes: probes.transform_values { |probe| probe[:out_ns].to_i }.select { |_, ns| ns.positive? },
         functions: functions&.fetch(:reason)}
      end

      # The same as lines for the user.
      def limits_in_words
        limited => {probes:, functions:}
        offset = Clock.monotonic_offset
        said = probes.map do |name, ns|
          time = Clock.at(ns, offset).iso8601(3)
          "process #{pid}: #{name} counts until #{time} alone: #{snapshot[:probes][name][:reason]}"
        end
        said << "process #{pid}: #{functions}" if functions
        said.empty? ? ["process #{pid}: all hooks are installed again"] : said
      end

      private

      # How long threads waited for a CPU since the interval began, and how much CPU time no tick
      # met.
      def measure_scheduling
        return if @run_delay_ns || !@delays_before

        @run_delay_ns = RunDelay.between(@delays_before, RunDelay.of(pid, MOST_THREADS))
        @missed_by_ticks = missed_by_ticks
        @quiet = ThreadStates.between(@threads_before, ThreadStates.of(pid)) if @waits
      end

      def missed_by_ticks
        return TickedTime.missed_by_library(@ticked_before, @ticked) unless snapshot[:runtime] == "ruby"

        now = TickedTime.of(pid)
        TickedTime.missed(@kernel_ticked_before, now) if @kernel_ticked_before && now
      end

      # The time from the attach of the last probe until the hooks were in. nil where the library
      # does not report it.
      def waited_ns
        asked, hooks_in = snapshot.values_at(:asked_ns, :hooks_in_ns).map(&:to_i)
        # Hooks that another tracer had needed before were in already.
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

      # The state of the main thread: "R", "S", "T" (stopped), ...
      def state
        File.read("/proc/#{pid}/stat").rpartition(") ").last[0]
      rescue SystemCallError
        nil
      end

      # The working directory of the process; nil where it cannot be read.
      def folder
        File.readlink("/proc/#{pid}/cwd").force_encoding(Encoding::UTF_8).scrub
      rescue SystemCallError
        nil
      end

      # CPU time of the process's threads in ticks, without the watcher's.
      def cpu
        Dir.each_child("/proc/#{pid}/task").first(MOST_THREADS).sum do |thread|
          name, _, fields = File.read("/proc/#{pid}/task/#{thread}/stat").partition("(").last.rpartition(") ")
          name == WATCHER ? 0 : fields.split.values_at(11, 12).sum(&:to_i)
        end
      rescue SystemCallError
        0
      end

      # The names of all probes that the process's runtime can serve.
      def serves = snapshot[:probes].reject { |_, probe| probe[:state] == "unsupported" }.keys

      # The number of tracers on each probe; 0 when the process has ended.
      def tracers
        process.tracers(@semaphores)
      rescue Refused => e
        lost(e)
        @semaphores.map { 0 }
      end

      # A process that cannot be read any more counts as ended. Returns false.
      def lost(refused)
        @ended = true
        return false if refused.kind == :gone

        @refused = refused
        @absence = "it cannot be read any more (#{refused.message})"
        false
      end

      # Returns the probe. The trace need not wait for a process that will never fire it.
      def served(name)
        probe = @snapshot[:probes][name] or
          raise Error.new("the library in process #{pid} (#{@snapshot[:library]}) " \
                          "does not have the probe #{name}",
                          "update it there")
        return probe unless NEVER.include?(probe[:state]) && refuses?

        raise Unserved.new(@snapshot[:runtime], "process #{pid} does not serve #{name}: #{probe[:reason]}",
                           "probescope doctor -p #{pid}")
      end
    end
  end
end
