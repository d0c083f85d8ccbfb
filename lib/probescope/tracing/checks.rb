# frozen_string_literal: true

require_relative "clock"
require_relative "complaint"
require_relative "error"
require_relative "figure"
require_relative "lost"
require_relative "program"
require_relative "table_renderer"

module Probescope
  module Tracing
    # Finds what is missing from a trace's figures. Each method passes one line per finding to the
    # block, and raises Error where there is nothing to show.
    class Checks
      # A machine counts as busy when a process's threads wait for a CPU longer than this part of
      # their CPU time.
      BUSY = {"ruby" => 0.25, "python" => 1}.freeze

      # result: Result. program_path: the program that ran. some: whether a process that serves only
      # a part of the program's probes is traced. keys: rows that bpftrace had room for.
      # max_overhead: the share that ends a trace, or nil.
      def initialize(result, program_path, some:, keys:, max_overhead:, &say)
        @result = result
        @program_path = program_path
        @some = some
        @keys = keys
        @max_overhead = max_overhead
        @say = say
      end

      # samples: whether the figures come from samples.
      def of_a_table(samples:)
        ended
        served
        notes
        scheduled if samples
        ends
        torn
        raise nothing_known unless @result.any?

        others
        lost
      end

      # A stream shows nothing that arrives while bpftrace detaches, so the end of the trace may
      # lack events. closed: whether the command ended the trace early, and shows nothing more.
      # told: whether anything was shown. missing: how many events did not arrive, by the command's
      # own count. samples: whether what was shown are samples.
      def of_a_stream(closed:, told:, missing: 0, samples: false)
        ended
        served
        notes
        scheduled if samples
        told && !@result.maps? ? cut_off : ends
        others
        lost(missing) unless closed
      end

      def nothing_known
        Error.new("no process finished an interval in that time: nothing is known", doctor)
      end

      # The line for processes that serve a probe only in part.
      def self.only_in_part(pids, probe, reason)
        "#{list(pids)} #{pids.one? ? "serves" : "serve"} #{probe} only in part: #{reason}"
      end

      def self.list(pids) = pids.one? ? "process #{pids.first}" : "processes #{TableRenderer.numbers(pids)}"

      private

      def say(text) = @say.call(text)
      def list(pids) = self.class.list(pids)
      def doctor(pids = @result.pids) = "probescope doctor -p #{pids.first}"

      def ended
        raise Error.new(@result.error, doctor) if @result.error
        raise Complaint.error(@result.stderr, "failed", doctor) if @result.reason == :tracer_ended
      end

      def notes
        @result.notes.each { |note| say(note) }
        taken_out
        overhead
        slowed
      end

      # Reports probes that are not fully on. Raises Error when no process serves a probe; prints a
      # line when some processes do not.
      def served
        taken = @result.processes.to_h { |one| [one.pid, one.taken_out] }
        Program.probes(@program_path).each do |name|
          probes = @result.members.to_h { |member| [member[:pid], member[:probes][name.to_sym]] }.compact
          refused = probes.select { |_, probe| %w[refused unsupported].include?(probe[:state]) }
                          .reject { |pid, _| taken.dig(pid, name.to_sym) }
          refused(name, refused, everywhere: refused.size == probes.size) if refused.any?
          degraded = probes.select { |_, probe| probe[:state] == "degraded" }
          say(self.class.only_in_part(degraded.keys, name, degraded.values.first[:reason])) if degraded.any?
        end
      end

      def refused(name, probes, everywhere:)
        why = "#{list(probes.keys)} #{probes.one? ? "does" : "do"} not serve #{name}: " \
              "#{probes.values.first[:reason]}"
        raise Error.new(why, doctor(probes.keys)) if everywhere && !@some

        say(why)
      end

      # Reports the probes that processes took out themselves, and the processes' notes on their
      # settings.
      def taken_out
        notes = @result.members.map { |member| member.values_at(:pid, :note) }
        notes.reject { |_, note| note.to_s.empty? }.each do |pid, note|
          say("process #{pid} says: #{note}")
        end
        @result.processes.each do |one|
          one.taken_out.each do |name, time|
            reason = @result.members.find { |member| member[:pid] == one.pid }.dig(:probes, name, :reason)
            say("#{name} of process #{one.pid} counts until #{Clock.of_day(time)} alone: #{reason}")
          end
        end
      end

      def overhead
        return unless @result.reason == :too_dear

        seconds = format("%.1f", @result.seconds)
        share = Figure.share(@result.looking_share)
        say("ended after #{seconds} s: looking took #{share} of the CPU time, " \
            "more than --max-overhead #{format("%g", @max_overhead * 100)}%")
      end

      # CPython 3.11 executes every instruction more slowly under a profile hook. A clock in the
      # hook cannot measure that.
      def slowed
        return if Program.probes(@program_path).grep(/\Afunction__/).empty?

        found = @result.members.select do |member|
          member[:runtime] == "python" && member[:version].start_with?("3.11.")
        end
        pids = found.map { |member| member[:pid] }
        if pids.any?
          say("#{list(pids)}: CPython 3.11 runs all code slower while functions are traced; " \
              "what looking took is without that")
        end
      end

      # What is sampled too rarely while threads wait for a CPU. Ruby's samples are taken at ticks
      # of the kernel. CPython's samples are taken by a thread, which comes late while a system call
      # keeps the CPU.
      TOO_SELDOM = {"ruby" => "what runs for a few ms between two waits",
                    "python" => "what is in system calls of 0.1 ms and more"}.freeze

      def scheduled
        @result.processes.zip(@result.members) do |one, member|
          busy(one, member)
          missed(member)
        end
      end

      def busy(one, member)
        delay = member[:run_delay_ns]
        return unless one.cpu_ns && delay && delay > one.cpu_ns * BUSY.fetch(member[:runtime])

        ran, waited = [one.cpu_ns, delay].map { |ns| Figure.time(ns) }
        say("the machine is busy: threads of process #{one.pid} ran for #{ran} and waited #{waited} " \
            "for a CPU; #{TOO_SELDOM.fetch(member[:runtime])} has too few samples " \
            "(docs/reference/limits.md)")
      end

      # Samples are taken at ticks only where the state of the probe is "on".
      def missed(member)
        part = member[:missed_by_ticks]
        sampled = member[:probes].any? do |name, probe|
          name.start_with?("sample", "stack__cpu") && probe[:state] == "on"
        end
        return unless part && sampled

        say(format(Lost::UNCOUNTED.fetch(:missed_by_ticks), share: Figure.share(part), pid: member[:pid]))
      end

      def ends
        left_out = @result.processes.select(&:left_out)
        ended = @result.members.select { |member| member[:ended] }.map { |member| member[:pid] }
        ended -= left_out.map(&:pid)
        if ended.any?
          say("#{list(ended)} ended while #{ended.one? ? "it was" : "they were"} traced; " \
              "this is what was told until then")
        end
        left_out.group_by(&:left_out).each do |why, all|
          say("nothing is known of #{list(all.map(&:pid))}, which #{all.one? ? "is" : "are"} left out: " \
              "#{why}")
        end
        strangers = @result.strangers
        return if strangers.empty?

        say("#{list(strangers)} came later with another library, and nobody traced " \
            "#{strangers.one? ? "it" : "them"}: run the command again")
      end

      # A flush that was shown is also in a map, and bpftrace prints its maps last.
      def cut_off
        say(Lost::UNCOUNTED.fetch(:cut_off))
      end

      def torn
        return unless @result.torn?

        say("a process flushed while bpftrace was leaving: some figures may cover a second more than others")
      end

      def others
        others = @result.others
        return if others.values.sum.zero?

        which = case others[:processes]
                when 0 then "other processes that have ended had the same library and were"
                when 1 then "1 other process has the same library and was"
                else "#{others[:processes]} other processes have the same library and were"
                end
        say("#{which} switched on too; rows left out: #{others[:rows]}")
      end

      # The same loss may be in bpftrace's count and in the command's, so they are not added up.
      def lost(missing = 0)
        lost = @result.lost
        {**lost, events: [lost[:events], missing].max}.slice(*Lost::WARNINGS.keys).each do |what, number|
          say(format(Lost::WARNINGS.fetch(what), number: number, keys: @keys * 4)) if number.positive?
        end
      end
    end
  end
end
