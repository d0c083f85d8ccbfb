# frozen_string_literal: true

require_relative "tracing"
require_relative "../host/clock"
require_relative "../host/figure"
require_relative "../host/table_renderer"

module Probescope
  module Commands
    # A command that shows what comes as it comes, until Ctrl-C or -d, one line after the other. A
    # subclass has PROGRAM, and
    #   more_options(parser)   its own options
    #   receive(text)          takes what the program printed
    #   finish(trace)          after the end
    # and prints with #show.
    class Stream < Tracing
      # Nobody waits that long.
      FOR_EVER = 1e9
      # 1 MiB: a burst fits, and the reader may be kept from a busy CPU for some milliseconds.
      PAGES = 256

      def initialize
        super
        @seconds = FOR_EVER
        @closed = false
      end

      private

      def options(parser)
        process_options(parser)
        duration_option(parser, "how long; until Ctrl-C by default")
        max_overhead_option(parser)
        more_options(parser)
        parser.on("--json", "a JSON object a line instead of columns") { @json = true }
        output_options(parser)
      end

      def report(trace)
        found = checks(trace)
        found.of_a_stream(closed: @closed)
        finish(trace)
        raise found.nothing_known unless trace.any? || @told

        0
      end

      def heard(answer)
        case answer[:is]
        # bpftrace -p has no other process, and may know this one by another number.
        when "attached" then @traced = answer[:pids] unless answer[:by_pid]
        when "joined" then @traced << answer[:pid]
        end
      end

      # False for processes that nobody asked for and that map the same library file.
      def wanted?(pid) = @traced.nil? || @traced.include?(pid)

      def listen = Host::Output.new { |text| receive(text.chomp) unless @closed }

      # What is shown is progress enough.
      def progressing = yield(Host::Progress.new(@seconds, nil))

      def json(event) = Host::Text.answer(name, event)

      # In JSON. to and what follows it: nil where there is no end.
      def interval_of(from, to, wall_ns, cpu_ns, looking_ns)
        {begin: Host::Clock.iso(from), end: Host::Clock.iso(to), seconds: wall_ns && (wall_ns / 1e9).round(3),
         cpu_share: Host::Figure.ratio(cpu_ns, wall_ns),
         looking_share: Host::Figure.ratio(looking_ns, cpu_ns)}
      end

      # One line, at once. Whoever read it may have gone: `probescope stat -p 4711 | head`.
      def show(text)
        @told = true
        destination.puts(text)
        destination.flush
      rescue Errno::EPIPE
        destination.reopen(File::NULL)
        enough
      end

      # What lines are written to.
      def destination
        @destination ||= @path ? File.open(@path, "w") : $stdout
      rescue SystemCallError => e
        raise Host::Error.new("cannot write #{@path}: #{e.message}",
                              "-o a file in a folder that you may write to")
      end

      # Ends before the time is up; nothing more is shown.
      def enough
        @closed = true
        @client.stop
      end
    end
  end
end
