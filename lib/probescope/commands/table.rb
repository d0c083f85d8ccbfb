# frozen_string_literal: true

require_relative "tracing"
require_relative "../host/answer"
require_relative "../host/answers"
require_relative "../host/descendants"
require_relative "../host/json_renderer"
require_relative "../host/table_renderer"
require_relative "../host/terminal"

module Probescope
  module Commands
    # A command that traces processes for some seconds and shows a table. Its columns, its JSON and
    # the texts beside them stand in docs/schema/schemas.yml. A subclass has PROGRAM, MIN (what
    # --min is a share of, nil where there is none) and a class Report (Host::Report), which makes
    # rows of a trace and need not know how many processes there are: see Host::Trace for how rows
    # of several become one, and with --by-pid there is a report of each process.
    class Table < Tracing
      def initialize
        super
        @top = 20
        @min = 0.0
      end

      private

      def definition = Host::Answers::ALL.fetch(name)

      def options(parser)
        process_options(parser)
        by_pid_option(parser, "rows of each process by itself, the busiest first")
        by_request_option(parser) if self.class::BY_REQUEST
        duration_option(parser, "how long, 10 by default; it ends with the process's next flush")
        max_overhead_option(parser)
        parser.on("--all", self.class::ALL) { @all = true }
        top_option(parser, "the first N rows of the table, 20 by default; 0 for all")
        if self.class::MIN
          parser.on("--min PERCENT", Float, "hide rows below this share of #{self.class::MIN}") do |min|
            @min = min
          end
        end
        sort_option(parser) if sortable.any?
        parser.on("--json", "one JSON object with every row instead of the table") { @json = true }
        output_options(parser)
      end

      def sort_option(parser)
        parser.on("--sort COLUMN", "by another column, the largest first: #{sortable.join(", ")}") do |text|
          @sort = sort(text)
        end
      end

      # Headings of columns that rows can be sorted by.
      def sortable = definition.columns.map(&:heading)

      def sort(text)
        column = definition.columns.find { |one| one.heading.casecmp?(text) }
        return column if column

        raise CLI::Usage.new("there is no column #{text.inspect}#{CLI.meant(text.upcase, sortable)}",
                             "--sort #{sortable.first.inspect}")
      end

      def by_request_option(parser)
        parser.on("--by-request",
                  "rows of each method and route by itself, - for what is in no request") do
          @by_request = true
        end
      end

      def prepare
        say("--top is for tables: JSON has every row") if @json && @top_given && @top.positive?
      end

      # Its program ends the interval of a process by itself, at its first flush after the time is
      # up.
      def program_arguments = [Host::Program.closing(@seconds)]

      def default_keys = @by_request ? definition.map_keys_by_request : definition.map_keys

      def report(trace)
        check(trace)
        to_output { |io| io.puts(renderer(answer(trace), io).text) }
        0
      end

      def renderer(answer, io)
        return Host::JsonRenderer.new(answer) if @json

        Host::TableRenderer.new(answer, Host::Terminal.new(io, color: @color), hint: hint(answer.result.pids))
      end

      def answer(trace)
        Host::Answer.new(name, definition, trace,
                         min: @min, top: @json ? 0 : @top, sort: @sort, by_pid: @by_pid,
                         by_request: @by_request, warnings: @warnings) { |part| report_of(part) }
      end

      # The rows of a trace, or of a part of it.
      def report_of(part) = self.class::Report.new(part, definition, by_request: @by_request)

      # Raises Host::Error when there is nothing to show for a reason; warns of what makes the
      # figures less than whole.
      def check(trace)
        checks(trace).of_a_table(samples: definition.samples)
      end

      # Where the work may be that the table has nothing of: servers leave theirs to processes that
      # they fork.
      def hint(pids)
        children = @workers ? [] : pids.flat_map { |pid| Host::Descendants.of(pid) } - pids
        its = children.one? ? "its child" : "its #{children.size} children"
        ["--workers takes #{its}, too"].select { children.any? }
      end
    end
  end
end
