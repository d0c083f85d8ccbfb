# frozen_string_literal: true

require_relative "traced"

module Probescope
  module Commands
    # A command that shows what comes as it comes, until Ctrl-C or -d, one line after the other. A subclass has PROGRAM, and
    #   receive(text)   takes what the program printed
    #   finish(trace)   after the end
    # and prints with #show.
    class Streamed < Traced
      # Nobody waits that long.
      FOR_EVER = 1e9

      def initialize
        super
        @seconds = FOR_EVER
        @closed = false
      end

      private

      def options(parser)
        process_options(parser)
        parser.on("-d", "--duration SECONDS", Float, "how long; until Ctrl-C by default") do |seconds|
          raise CLI::Usage.new("-d takes a positive number of seconds", "-d 10") unless seconds.positive? && seconds.finite?

          @seconds = seconds
        end
        more_options(parser)
        parser.on("--json", "a JSON object a line instead of columns") { @json = true }
      end

      def more_options(_parser); end

      def call
        raise CLI::Usage.new("which process? -p PID is missing", "probescope ps") if @pids.empty? && !@comm

        trace = trace_processes
        check(trace)
        finish(trace)
        0
      end

      def finish(_trace); end

      # Processes that nobody asked for can map the same library file: their lines are left out.
      def heard(answer)
        case answer[:is]
        when "attached" then @wanted = answer[:pids] if answer[:others].positive?
        when "joined" then @wanted&.push(answer[:pid])
        end
      end

      def wanted?(pid) = @wanted.nil? || @wanted.include?(pid)

      def listen = Host::Output.new { |text| receive(text.chomp) unless @closed }

      # What is shown is progress enough.
      def progressing = yield(Host::Progress.new(@seconds, File.new(File::NULL)))

      # One line, at once. Whoever read it may have gone: `probescope stat -p 4711 | head`.
      def show(text)
        $stdout.puts(text)
        $stdout.flush
      rescue Errno::EPIPE
        $stdout.reopen(File::NULL)
        enough
      end

      # Ends before the time is up; nothing more is shown.
      def enough
        @closed = true
        @client.stop
      end
    end
  end
end
