# frozen_string_literal: true

require_relative "stream"
require_relative "../tracing/clock"

module Probescope
  module Commands
    # Prints one line a second.
    class Stat < Stream
      PROGRAM = "stat.bt"
      LIGHT = "light.bt"
      SOME = true
      USAGE = "stat -p PID [options]"
      ABOUT = <<~TEXT
        What happens in the process: one line a second, as vmstat shows it for the machine. The command
        counts every call of the application's own functions and every allocation, which costs 0.05 to
        0.1 us for each of them. --light leaves these columns out and costs next to nothing. The figures
        of several processes are added up.

          CPU         share of one processor
          LOOKING     the part of CPU that the hooks of this command took
          CALLS       of the application's own functions
          RAISES      exceptions
          BACKTRACES  time for their backtraces, and for turning these into strings
          ALLOCS      objects, and the BYTES of their slots
          GC          time in the garbage collector
          SAMPLES     of 99 samples of the stack, those that found the process running
          LOST        rows for which there was no memory, and samples that could not be taken

        A figure that the process does not serve is shown as - and not as 0.
      TEXT
      EXAMPLES = <<~TEXT
        probescope stat -p 4711                     until Ctrl-C
        probescope stat -p 4711 --light -d 60       a minute, without what costs each call and each allocation
        probescope stat -p 4711 --workers --by-pid  a line for each worker
        probescope stat -p 4711 --json | jq --unbuffered '.raises'
      TEXT
      HEADING_EVERY = 20
      # What a line of the program has, and the probe behind each figure.
      LINE = Tracing::Definitions::LINES.fetch("stat")

      def initialize
        super
        @lines = 0
        @round = {} # pid => figures of the line that is shown next
        @states = {} # pid => {probe => state}, as the process reports it
        @clock = Tracing::Clock.new
        @telling = {} # pid => whether it reports the time up to which it counts
      end

      private

      def more_options(parser)
        by_pid_option(parser, "a line for each process")
        parser.on("--light", "without calls and allocations") { @light = true }
      end

      def program = @light ? LIGHT : PROGRAM

      def receive(text)
        mark, *words = text.split
        # Programs from before 0.1.0 do not print the last two fields. Some recordings in
        # spec/fixtures come from such programs.
        return unless mark == "=" && words.size.between?(LINE.printed.size - 2, LINE.printed.size)

        figures = LINE.printed.zip(words.map(&:to_i)).to_h
        take(figures.delete(:pid), figures)
      end

      def heard(answer)
        super
        return unless answer[:is] == "states"

        @states[answer[:pid]] = answer[:states]
        @telling[answer[:pid]] = answer[:tells_of_cut]
        # Printed at once: lines are shown until Ctrl-C, and from now on their figures are lower.
        answer[:in_part].to_h.each do |probe, reason|
          say(Tracing::Checks.only_in_part([answer[:pid]], probe, reason))
        end
      end

      # Each process flushes at its own moment. A line is shown when every process has reported its
      # second, or when one process reports its next second.
      def take(pid, figures)
        return unless wanted?(pid)

        show_round if @round.key?(pid)
        ended = ended(pid, figures)
        @round[pid] = figures.merge(began: ended - figures[:wall_ns], ended: ended, **unknown(pid))
        show_round if @by_pid || @traced.nil? || (@traced - @round.keys).empty?
      end

      # The time of day, in ns, up to which the line counts. An older library does not report it;
      # then the time when the line arrived is used.
      def ended(pid, figures)
        unless figures[:cut] && @telling.fetch(pid) { @telling.values.first }
          return figures[:ended] + @clock.offset
        end

        figures[:cut] + Tracing::Clock.monotonic_offset
      end

      # Figures whose probe the process does not serve are nil. With bpftrace -p there is only one
      # process, for which bpftrace may have another number.
      def unknown(pid)
        states = @states[pid] || @states.values.first || {}
        LINE.takes.reject { |_, probe| Tracing::Result::ON.include?(states[probe]) }.transform_values { nil }
      end

      def show_round
        show_line(@by_pid ? "PID" : "PROCS", renderer.heading) if !@json && (@lines % HEADING_EVERY).zero?
        @lines += 1
        all = @round.values
        times = {wall_ns: all.map { |one| one[:wall_ns] }.max, began: all.map { |one| one[:began] }.min,
                 ended: all.map { |one| one[:ended] }.max}
        sums = all.reduce { |one, other| one.merge(other) { |_, a, b| a && b ? a + b : a || b } }.merge(times)
        who = @by_pid ? @round.keys.first : @round.size
        event = event(sums)
        @json ? show(json(event)) : show_line(who, renderer.text(event))
        @round = {}
      end

      def finish(_trace)
        show_round if @round.any? && !@closed
      end

      def several? = pids.size != 1 || @workers || @comm

      def show_line(who, text) = show("#{who.to_s.rjust(8) if several?}#{text}")

      # The figures of a line, as docs/schema has them.
      def event(sums)
        figures = sums.slice(:cpu_ns, :calls, :raises, :backtrace_ns, :allocations, :bytes, :gc_ns, :samples)
        lost = {rows: sums[:rows], samples: sums[:samples_missed], details: sums[:details]}
        times = sums.values_at(:began, :ended).map { |nanoseconds| Tracing::Clock.at(nanoseconds, 0) }
        covered = interval_of(*times, *sums.values_at(:wall_ns, :cpu_ns, :looking_ns))
        {pids: @round.keys, **covered, **figures, lost: lost}
      end
    end
  end
end
