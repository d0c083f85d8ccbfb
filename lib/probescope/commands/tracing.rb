# frozen_string_literal: true

require "shellwords"
require_relative "base"
require_relative "../host/bpftrace"
require_relative "../host/checks"
require_relative "../host/client"
require_relative "../host/kernel"
require_relative "../host/output"
require_relative "../host/privilege"
require_relative "../host/program"
require_relative "../host/progress"
require_relative "../host/request"
require_relative "../host/terminal"
require_relative "../host/trace"

module Probescope
  module Commands
    # A command that traces processes with a bpftrace program for some time. A subclass defines
    # PROGRAM (a file in providers/), and may define WIDENED, BY_REQUEST, SOME, KEYS and PAGES. Its
    # #report(trace) shows the result and returns the exit status.
    class Tracing < Base
      # Rows of bpftrace's maps; a row is about 1 KiB of kernel memory.
      KEYS = 16_384
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
      # Whether to trace a process that supports only some of the command's probes.
      SOME = false

      def initialize
        super
        @seconds = 10.0
        @pids = []
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

      def process_options(parser)
        parser.on("-p", "--pid PID", "a process; several: -p 1,2 or -p 1 -p 2") do |text|
          @pids |= process_ids(text)
        end
        parser.on("--workers", "its children too, also those that it forks later") { @workers = true }
        parser.on("--comm NAME", "the processes of that name (`probescope ps` shows it)") do |text|
          @comm = text
        end
        parser.on("--trust", TRUST) { @trust = true }
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
        parser.on("--color WHEN", Host::Terminal::COLORS,
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
        raise Host::Error.new("cannot write #{@path}: #{e.message}",
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
        raise CLI::Usage.new("which process? -p PID is missing", "probescope ps") if @pids.empty? && !@comm

        Host::Kernel.new.check
        bpftrace = Host::Bpftrace.find
        Host::Client.open(Host::Privilege.new.prefix(bpftrace)) do |client|
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
        else heard(answer)
        end
      end

      # The whole trace, after its end.
      def result = Host::Trace.new(output, @ended, program_path)

      # The parser of bpftrace's output.
      def output = @output ||= listen
      def listen = Host::Output.new

      # Takes the other answers of the helper.
      def heard(_answer) = nil

      def progressing(&block) = Host::Progress.show(@seconds, &block)

      # The name of the program's file in providers/.
      def program = self.class::PROGRAM

      def program_path = Host::Program.path(@by_request ? program.sub(".bt", "_by_request.bt") : program)

      # The program's arguments from $2 on.
      def program_arguments = []

      # The request to the helper.
      def order
        files = [program_path, *(Host::Program.path("all.bt") if @all && self.class::WIDENED)]
        Host::Order.of(pids: @pids, comm: @comm, workers: @workers || false, trust: @trust || false,
                       programs: files.map { |path| File.basename(path, ".bt") },
                       arguments: program_arguments, seconds: @seconds, max_overhead: @max_overhead,
                       keys: keys, pages: self.class::PAGES, some: self.class::SOME)
      end

      def keys
        number = Integer(ENV.fetch("PROBESCOPE_MAP_KEYS", default_keys), exception: false)
        return number if number&.between?(1, Host::Request::MOST_KEYS)

        raise CLI::Usage.new("PROBESCOPE_MAP_KEYS is no number of rows up to #{Host::Request::MOST_KEYS}",
                             "unset PROBESCOPE_MAP_KEYS")
      end

      def default_keys = KEYS

      # Ctrl-C, TERM and a closed terminal end the trace; the command then shows what it has.
      def ending_early(client)
        before = %w[INT TERM HUP].to_h { |name| [name, trap(name) { client.stop }] }
        yield
      ensure
        before&.each { |name, handler| trap(name, handler) }
      end

      # The notes on what the trace's figures lack.
      def checks(trace)
        Host::Checks.new(trace, program_path,
                         some: self.class::SOME, keys: keys, max_overhead: @max_overhead) { |text| say(text) }
      end

      # Prints a line on stderr, and keeps it for the warnings of JSON. The same text is printed
      # once, because commands report a fact while they run and again at their end.
      def say(text)
        return if @warnings.include?(text)

        @warnings << text
        line = "probescope: #{Host::Text.clean(text)}"
        warn(Host::Terminal.new($stderr, color: @color).paint(line, :warning))
      end
    end
  end
end
