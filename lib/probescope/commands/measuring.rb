# frozen_string_literal: true

require "shellwords"
require_relative "base"
require_relative "process_options"
require_relative "../tracing/bpftrace"
require_relative "../tracing/checks"
require_relative "../tracing/client"
require_relative "../tracing/kernel"
require_relative "../tracing/output"
require_relative "../tracing/privilege"
require_relative "../tracing/program"
require_relative "../tracing/progress"
require_relative "../tracing/request"
require_relative "../tracing/result"
require_relative "../tracing/terminal"

module Probescope
  module Commands
    # A command that traces processes with a bpftrace program for some time. A subclass defines
    # PROGRAM (a file in providers/), and may define WIDENED, BY_REQUEST, SOME, KEYS and PAGES. Its
    # #report(result) shows the result and returns the exit status.
    class Measuring < Base
      include ProcessOptions

      # Rows of bpftrace's maps; a row is about 1 KiB of kernel memory.
      KEYS = Tracing::Definitions::MAP_KEYS
      # Pages of the buffer on each CPU for what the bpftrace program prints.
      PAGES = 64
      # Help text of --all, and whether --all adds the program all.bt.
      ALL = "no effect here: every file takes part anyway"
      WIDENED = false
      # The hint that a WIDENED command prints where it has nothing to show.
      ALL_HINT = "(--all follows those of gems and packages too)"
      # Whether there is a program that tells requests apart, NAME_by_request.bt.
      BY_REQUEST = false
      # Environment variable with options for every command that traces.
      DEFAULTS = "PROBESCOPE_OPTS"
      # The longest string of the program in bytes, nil for bpftrace's default of 64.
      STRINGS = nil
      # Whether to trace a process that supports only some of the command's probes.
      SOME = false

      def initialize
        super
        @seconds = 10.0
        @warnings = []
        @color = "auto"
      end

      private

      # PROBESCOPE_OPTS is parsed before the command line, which therefore takes precedence.
      def parse(argv)
        defaults
        super
      end

      def defaults
        rest = parser.parse(Shellwords.split(ENV.fetch(DEFAULTS, "")))
        if rest.any?
          raise CLI::Usage.new("#{DEFAULTS} holds #{rest.first.inspect}, which is no option",
                               "unset #{DEFAULTS}")
        end
      rescue ArgumentError, OptionParser::ParseError => e
        raise CLI::Usage.new("#{DEFAULTS}: #{e.message.gsub(/\n\s*/, ". ")}", "unset #{DEFAULTS}")
      end

      def by_pid_option(parser, meaning)
        parser.on("--by-pid", meaning) { @by_pid = true }
      end

      def duration_option(parser, meaning)
        parser.on("-d", "--duration SECONDS", Float, meaning) do |seconds|
          unless seconds.positive? && seconds.finite?
            raise CLI::Usage.new("-d takes a positive number of seconds", "-d 10")
          end

          @seconds = seconds
        end
      end

      def max_overhead_option(parser)
        parser.on("--max-overhead PERCENT",
                  "end early once looking takes more of the process's CPU time, such as 5%") do |text|
          number = Float(text.delete_suffix("%"), exception: false)
          unless number&.positive?
            raise CLI::Usage.new("--max-overhead takes a percentage above 0", "--max-overhead 5%")
          end

          @max_overhead = number / 100
        end
      end

      def output_options(parser)
        parser.on("-o", "--output FILE", "into a file and not on the terminal") { |path| @path = path }
        parser.on("--color WHEN", Tracing::Terminal::COLORS,
                  "auto (default), always or never: of large shares and of warnings") do |color|
          @color = color
        end
      end

      # Yields the stream for the report. With -o, the old file is replaced only when the report is
      # complete.
      def to_output(&block)
        return yield($stdout) unless @path

        part = "#{@path}.part"
        File.open(part, "w", &block)
        File.rename(part, @path)
      rescue SystemCallError => e
        raise Tracing::Error.new("cannot write #{@path}: #{e.message}",
                                 "-o a file in a folder that you may write to")
      end

      # Raises before anything is traced when the output cannot be written.
      def check_output
        return unless @path

        folder = File.dirname(@path)
        return if File.directory?(folder) && File.writable?(folder) && !File.directory?(@path)

        raise CLI::Usage.new("cannot write #{@path.inspect}", "-o a file in a folder that you may write to")
      end

      def top_option(parser, meaning)
        parser.on("--top N", Integer, meaning) do |top|
          raise CLI::Usage.new("--top takes 0 or more", "--top 20") if top.negative?

          @top = top
          @top_given = true
        end
      end

      def call
        check_output
        prepare
        report(trace_processes)
      end

      # Runs before the trace starts.
      def prepare = nil

      def trace_processes
        check_chosen("-p PID")
        Tracing::Kernel.new.check
        bpftrace = Tracing::Bpftrace.find
        Tracing::Client.open(Tracing::Privilege.new.prefix(bpftrace)) do |client|
          progressing do |progress|
            @client = client
            ending_early(client) do
              client.trace(order) do |answer|
                progress.count if answer[:is] == "counting"
                told(answer)
              end
            end
          end
        end
        result
      end

      # Takes an answer of the helper. Some answers are lines of bpftrace's output.
      def told(answer)
        case answer[:is]
        when "output" then output << answer[:line]
        when "leaving" then output.deaf = true
        when "ended" then @ended = answer
        else
          @programs = answer[:programs] if answer[:is] == "attached"
          heard(answer)
        end
      end

      # Whether the kernel reports what the runtime of the processes does not (Program::BY_KERNEL).
      def by_kernel?
        asked = @by_request ? "#{name}_by_request" : name
        @programs.to_a.include?(Tracing::Program::BY_KERNEL.fetch(asked, []).first)
      end

      # The result of the trace, after its end.
      def result = Tracing::Result.new(output, @ended, program_path)

      # The parser of bpftrace's output.
      def output = @output ||= listen
      def listen = Tracing::Output.new

      # Takes the other answers of the helper.
      def heard(_answer) = nil

      def progressing(&block) = Tracing::Progress.show(@seconds, &block)

      # The name of the program's file in providers/.
      def program
        by_kernel? ? "#{Tracing::Program::BY_KERNEL.fetch(name).first}.bt" : self.class::PROGRAM
      end

      def program_path = Tracing::Program.path(@by_request ? program.sub(".bt", "_by_request.bt") : program)

      # The program's arguments from $2 on.
      def program_arguments = []

      # The request to the helper.
      def order
        files = [program_path, *(Tracing::Program.path("all.bt") if @all && self.class::WIDENED)]
        traced = {programs: files.map { |path| File.basename(path, ".bt") }, arguments: program_arguments,
                  seconds: @seconds, max_overhead: @max_overhead, some: self.class::SOME}
        Tracing::Order.of(**chosen, **traced, keys: keys, pages: self.class::PAGES, strings: strings)
      end

      def keys
        number = Integer(ENV.fetch("PROBESCOPE_MAP_KEYS", default_keys), exception: false)
        return number if number&.between?(1, Tracing::Request::MOST_KEYS)

        raise CLI::Usage.new("PROBESCOPE_MAP_KEYS is no number of rows up to #{Tracing::Request::MOST_KEYS}",
                             "unset PROBESCOPE_MAP_KEYS")
      end

      def default_keys = KEYS
      def strings = self.class::STRINGS

      # Ctrl-C, TERM and a closed terminal end the trace; the command then shows what it has.
      def ending_early(client)
        catch_signals(client)
        yield
      ensure
        release_signals
      end

      def catch_signals(client)
        @handlers = %w[INT TERM HUP].to_h { |name| [name, trap(name) { client.stop }] }
        trap("HUP", "IGNORE") if @handlers["HUP"] == "IGNORE" # nohup
      end

      def release_signals
        @handlers&.each { |name, handler| trap(name, handler) }
        @handlers = nil
      end

      # The notes on what the trace's figures lack.
      def checks(result)
        Tracing::Checks.new(result, program_path, some: self.class::SOME, keys: keys,
                                                  max_overhead: @max_overhead) { |text| say(text) }
      end

      # Prints a line on stderr, and keeps it for the warnings of JSON. The same text is printed
      # once, because commands report a fact while they run and again at their end.
      def say(text)
        return if @warnings.include?(text)

        @warnings << text
        print_warning(text)
      end

      # The terminal, or the reader of a pipe, may be gone: that is no reason to lose the figures.
      def print_warning(text)
        line = "probescope: #{Tracing::Text.clean(text)}"
        warn(Tracing::Terminal.new($stderr, color: @color).paint(line, :warning))
      rescue SystemCallError
        nil
      end
    end
  end
end
