# frozen_string_literal: true

require_relative "streamed"

module Probescope
  module Commands
    # One line a second.
    class Stat < Streamed
      PROGRAM = "stat.bt"
      LIGHT = "light.bt"
      USAGE = "stat -p PID [options]"
      ABOUT = <<~TEXT
        What happens in the process, a line each second, as vmstat does for the machine. It counts every call of the
        application's own functions and every allocation, which costs each of them 0.05 to 0.1 us; with --light it leaves these
        columns out and costs next to nothing.

          CPU         of the process, of one processor
          CALLS       of the application's own functions
          RAISES      exceptions
          BACKTRACES  time that their backtraces took, also to become strings
          ALLOCS      objects, and the BYTES of their slots
          GC          time in the garbage collector
          SAMPLES     looks at the stack that found it running, of 99
          LOST        rows without memory, and samples that could not be taken
      TEXT
      EXAMPLES = <<~TEXT
        probescope stat -p 4711                until Ctrl-C
        probescope stat -p 4711 --light -d 60  a minute, without what costs each call and each allocation
        probescope stat -p 4711 --json | jq --unbuffered '.raises'
      TEXT
      COLUMNS = {"CPU" => 8, "CALLS" => 12, "RAISES" => 10, "BACKTRACES" => 11, "ALLOCS" => 12, "BYTES" => 10, "GC" => 9,
                 "SAMPLES" => 8, "LOST" => 6}.freeze
      HEADING_EVERY = 20
      # The words of a line of the program, behind its mark.
      FIELDS = %i[pid wall_ns cpu_ns calls raises backtrace_ns allocations bytes gc_ns samples rows_lost samples_lost
                  details_lost].freeze

      def initialize
        super
        @lines = 0
        @strings = Hash.new(0)
      end

      private

      def more_options(parser)
        parser.on("--light", "without calls and allocations") { @light = true }
      end

      def program = @light ? LIGHT : PROGRAM

      def receive(text)
        mark, *words = text.split
        figures = words.map { |word| Integer(word, exception: false) }
        return if figures.any?(&:nil?)

        case mark
        when "+" then @strings[figures.first] += figures[1] if figures.size == 2
        when "=" then line(FIELDS.zip(figures).to_h) if figures.size == FIELDS.size
        end
      end

      def line(figures)
        figures[:backtrace_ns] += @strings.delete(figures[:pid]) || 0
        return unless wanted?(figures[:pid])

        figures.merge!(calls: nil, allocations: nil, bytes: nil) if @light

        show_heading if !@json && (@lines % HEADING_EVERY).zero?
        @lines += 1
        show(@json ? json(figures) : columns(figures))
      end

      def several? = @pids.size != 1 || @workers || @comm

      def show_heading
        show(row("PID", COLUMNS.keys))
      end

      def row(pid, cells)
        row = cells.zip(COLUMNS.values).map { |cell, width| " #{cell}".rjust(width) }
        row.unshift(pid.to_s.rjust(8)) if several?
        row.join
      end

      def columns(figures)
        cells = [Host::Figure.share(figures[:cpu_ns] / figures[:wall_ns].to_f), Host::Figure.count(figures[:calls]),
                 Host::Figure.count(figures[:raises]), Host::Figure.time(figures[:backtrace_ns]),
                 Host::Figure.count(figures[:allocations]), Host::Figure.bytes(figures[:bytes]), Host::Figure.time(figures[:gc_ns]),
                 Host::Figure.count(figures[:samples]), Host::Figure.count(figures[:rows_lost] + figures[:samples_lost])]
        row(figures[:pid], cells)
      end

      def json(figures)
        kept = figures.slice(:pid, :cpu_ns, :calls, :raises, :backtrace_ns, :allocations, :bytes, :gc_ns, :samples)
        lost = {rows: figures[:rows_lost], samples: figures[:samples_lost], details: figures[:details_lost]}
        Host::Text.json({command: name, seconds: (figures[:wall_ns] / 1e9).round(3), **kept, lost: lost})
      end
    end
  end
end
