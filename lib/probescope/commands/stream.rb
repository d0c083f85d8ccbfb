# frozen_string_literal: true

require_relative "measuring"
require_relative "../tracing/clock"
require_relative "../tracing/figure"
require_relative "../tracing/line_renderer"
require_relative "../tracing/table_renderer"

module Probescope
  module Commands
    # A command that shows events as they arrive, one line each, until Ctrl-C or -d. A subclass
    # defines PROGRAM, and
    #   more_options(parser)   its own options
    #   receive(text)          takes a line that the program printed
    #   finish(result)         runs after the trace
    #   missing(result)        how many events did not arrive, where it can count them
    # and prints with #show. docs/schema/schemas.yml defines its columns and its JSON.
    class Stream < Measuring
      # In effect without end.
      FOR_EVER = 1e9
      # 1 MiB: room for a burst, while the reader waits some milliseconds for a busy CPU.
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

      def report(result)
        found = checks(result)
        found.of_a_stream(closed: @closed, told: @told, missing: missing(result))
        finish(result)
        raise found.nothing_known unless result.any? || @told

        0
      end

      def missing(_result) = 0

      def heard(answer)
        case answer[:is]
        # bpftrace -p traces one process only, and may have another number for it.
        when "attached" then @traced = answer[:pids] unless answer[:by_pid]
        when "joined" then @traced << answer[:pid]
        end
      end

      # False for a process that maps the same library file but was not selected.
      def wanted?(pid) = @traced.nil? || @traced.include?(pid)

      def listen = Tracing::Output.new { |text| receive(text.chomp) unless @closed }

      # No progress bar: the lines themselves show progress.
      def progressing = yield(Tracing::Progress.new(@seconds, nil))

      def renderer = @renderer ||= Tracing::LineRenderer.new(name)

      def json(event) = Tracing::Text.answer(name, event)

      # For JSON. to, wall_ns, cpu_ns and looking_ns are nil where the interval has no end.
      def interval_of(from, to, wall_ns, cpu_ns, looking_ns)
        {begin: Tracing::Clock.iso(from), end: Tracing::Clock.iso(to),
         seconds: wall_ns && (wall_ns / 1e9).round(3), cpu_share: Tracing::Figure.ratio(cpu_ns, wall_ns),
         looking_share: Tracing::Figure.ratio(looking_ns, cpu_ns)}
      end

      # Prints one line, and flushes. The reader of a pipe may have closed it: `probescope stat -p
      # 4711 | head`.
      def show(text)
        @told = true
        destination.puts(text)
        destination.flush
      rescue Errno::EPIPE
        destination.reopen(File::NULL)
        enough
      end

      # The stream for the lines.
      def destination
        @destination ||= @path ? File.open(@path, "w") : $stdout
      rescue SystemCallError => e
        raise Tracing::Error.new("cannot write #{@path}: #{e.message}",
                                 "-o a file in a folder that you may write to")
      end

      # Ends the trace early, and shows nothing more.
      def enough
        @closed = true
        @client.stop
      end
    end
  end
end
