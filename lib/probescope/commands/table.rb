# frozen_string_literal: true

require_relative "by_option"
require_relative "measuring"
require_relative "../tracing/answer"
require_relative "../tracing/definitions"
require_relative "../tracing/descendants"
require_relative "../tracing/display"
require_relative "../tracing/json_renderer"
require_relative "../tracing/table_renderer"
require_relative "../tracing/terminal"

module Probescope
  module Commands
    # A command that traces processes for some seconds and shows a table. docs/schema/schemas.yml
    # defines its columns, its JSON and the texts around the table. A subclass defines PROGRAM, MIN
    # (the total of which --min is a share; nil without --min) and a class Report (a
    # Tracing::Report), which makes the rows of a result. A Report does not depend on the number of
    # processes: Tracing::Result merges the rows of several processes, and with --by-pid each
    # process gets its own Report.
    class Table < Measuring
      # What makes an application report its requests.
      TELLING = "`use Probescope::Rack`, `probescope.wsgi(app)` or `probescope.asgi(app)` " \
                "(docs/how-to/which-requests-are-slow-or-fail.md)"

      def initialize
        super
        @top = Tracing::Display::TOP
        @min = 0.0
      end

      private

      def definition = Tracing::Definitions::ALL.fetch(name)

      def options(parser)
        process_options(parser)
        by_pid_option(parser, "separate rows for each process, the busiest process first")
        by_request_option(parser) if self.class::BY_REQUEST
        by_options(parser) if self.class.include?(ByOption)
        duration_option(parser, "how long, 10 by default; the trace ends with the process's next flush")
        max_overhead_option(parser)
        parser.on("--all", self.class::ALL) { @all = true }
        top_option(parser, "the first N rows of the table, #{Tracing::Display::TOP} by default; 0 for all")
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
        parser.on("--sort COLUMN",
                  "sort by another column, the largest first: #{sortable.join(", ")}") do |text|
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
                  "separate rows for each method and route; - is outside of any request") do
          @by_request = true
        end
      end

      def prepare
        say("--top is for tables: JSON has every row") if @json && @top_given && @top.positive?
      end

      # The program itself ends a process's interval, at the first flush after the duration.
      def program_arguments = [Tracing::Program.closing(@seconds)]

      def default_keys = @by_request ? definition.map_keys_by_request : definition.map_keys

      def report(result)
        check(result)
        to_output { |io| io.puts(renderer(answer(result), io).text) }
        0
      end

      def renderer(answer, io)
        return Tracing::JsonRenderer.new(answer) if @json

        Tracing::TableRenderer.new(answer, Tracing::Terminal.new(io, color: @color),
                                   hint: hint(answer.result.pids))
      end

      def answer(result)
        Tracing::Answer.new(name, definition, result,
                            min: @min, top: @json ? 0 : @top, sort: @sort, by_pid: @by_pid,
                            by_request: @by_request, warnings: @warnings) { |part| report_of(part) }
      end

      # The rows of a result, or of a part of it.
      def report_of(part) = self.class::Report.new(part, definition, by_request: @by_request)

      # Raises Tracing::Error when there is nothing to show and the reason is known. Warns of what
      # is missing from the figures.
      def check(result)
        checks(result).of_a_table(samples: definition.samples)
        silent(result) if @by_request
      end

      # Warns when no live process reports requests. Processes that ended are left out, because they
      # may have reported some.
      def silent(result)
        return unless result.any?
        return if result.members.any? { |member| member[:tells_of_requests] }

        say("nothing in #{Tracing::Checks.list(result.pids)} tells of requests or jobs: #{TELLING}")
      end

      # A note for an empty table: a server's forked children may do the work.
      def hint(pids)
        children = @workers ? [] : pids.flat_map { |pid| Tracing::Descendants.of(pid) } - pids
        its = children.one? ? "its child" : "its #{children.size} children"
        ["--workers takes #{its}, too"].select { children.any? }
      end
    end
  end
end
