# frozen_string_literal: true

require_relative "cells"
require_relative "clock"
require_relative "definitions"
require_relative "figure"
require_relative "shortened"
require_relative "table"
require_relative "terminal"
require_relative "text"

module Probescope
  module Tracing
    # Renders an Answer as a table, under a head that describes the trace.
    class TableRenderer
      # The most processes that are listed.
      NAMED = 8
      # Columns of --by-pid and --by-request.
      PID = Definitions::Column.new("PID", :number, :pid, false).freeze
      REQUEST = Definitions::Column.new("REQUEST", :request, nil, false).freeze

      # terminal: Terminal. hint: what follows the text in place of a table without rows, or nil.
      def initialize(answer, terminal, hint: nil)
        @answer = answer
        @result = answer.result
        @terminal = terminal
        @hint = hint
      end

      def text = [*head, *(shown.rows.empty? ? without_rows : with_rows)].join("\n")

      # "process 7", or "2 processes (7, 8)"
      def self.processes(pids)
        pids.one? ? "process #{pids.first}" : "#{pids.size} processes (#{numbers(pids)})"
      end

      # The first NAMED of them.
      def self.numbers(pids) = "#{pids.first(NAMED).join(", ")}#{", ..." if pids.size > NAMED}"

      def self.span(from, to) = "from #{Clock.of_day(from)} to #{Clock.of_day(to)}"

      private

      def shown = @answer.shown

      def head
        all = @result.processes.reject(&:left_out)
        ["#{@answer.command} of #{self.class.processes(@result.counted)}, " \
         "#{format("%.1f", @result.seconds)} s, " \
         "#{Figure.share(Figure.ratio(@result.cpu_ns, @result.seconds * 1e9))} CPU#{rate}#{looking}",
         "#{self.class.span(@result.from, @result.to)}#{waited(all.filter_map(&:waited_ns))}",
         *shorter(all, @result.seconds * 1e9), *@answer.report.above]
      end

      def rate
        rate = @result.sample_rate if @answer.definition.samples
        ", #{format("%.0f", rate)} samples a second of it" if rate
      end

      def looking
        share = @result.looking_share
        ", #{Figure.share(share)} of it for looking" if share
      end

      def waited(times)
        "; waited #{"up to " if times.size > 1}#{Figure.time(times.max)} for the hooks" if times.any?
      end

      # Processes whose interval is shorter than the whole, such as later ones.
      def shorter(all, wall_ns)
        short = all.select { |one| one.wall_ns < wall_ns * 0.9 }
        lines = short.first(NAMED).map do |one|
          span = self.class.span(one.begin, one.end)
          "  process #{one.pid} #{span}, #{format("%.1f", one.wall_ns / 1e9)} s"
        end
        if short.size > NAMED
          lines << "  and #{short.size - NAMED} more were not covered all the time; " \
                   "--json has the intervals of each"
        end
        lines
      end

      def without_rows
        nothing = if shown.below.zero?
                    [@answer.report.nothing, *@hint].join("; ")
                  else
                    "every row (#{shown.below}) is below --min"
                  end
        [nothing, *@answer.report.not_covered].map { |line| "  #{line}" }
      end

      def with_rows
        below = [@answer.report.below(shown), *@answer.report.not_covered].compact
        ["", table,
         *(["", left_out] if shown.more.positive? || shown.below.positive?),
         *(["", *below] if below.any?)]
      end

      def left_out
        more = "#{Figure.count(shown.more)} more rows; --top 0 shows all" if shown.more.positive?
        if shown.below.positive?
          below = "#{Figure.count(shown.below)} rows below --min #{format("%g", @answer.min)}"
        end
        [more, below].compact.join("; ")
      end

      def table
        columns = columns_with_cells
        rows = columns.values.transpose
        right = columns.keys.select { |column| Cells::RIGHT.include?(column.kind) }.map(&:heading)
        shares = columns.keys.map { |column| column.key if column.kind == :share }
        Table.render(columns.keys.map(&:heading), rows, right: right) do |cell, row, i|
          @terminal.paint(cell, shares[i] && Terminal.heat(shown.rows[row][shares[i]]))
        end
      end

      # {column => cells}
      def columns_with_cells
        before = [(PID if @answer.by_pid?), (REQUEST if @answer.by_request?)].compact
        cells = [*before, *@answer.report.columns].to_h do |column|
          [column, shown.rows.map { |row| Text.clean(Cells.of(column, row)) }]
        end
        cells.reject! { |column, texts| column.optional && texts.all?("-") }
        @terminal.width ? fitting(cells) : cells
      end

      # Cells that fit the terminal: paths are relative to the application's folder, and long names
      # are cut in the middle.
      def fitting(cells)
        cells = cells.to_h { |column, texts| [column, texts.map { |text| relative(text, column) }] }
        may = cells.keys.map { |column| !Cells::RIGHT.include?(column.kind) }
        widths = cells.map { |column, texts| [column.heading, *texts].map { |text| Table.width(text) }.max }
        widths = Shortened.widths(widths, may, @terminal.width - (2 * (widths.size - 1)))
        cells.zip(widths).to_h do |(column, texts), width|
          [column, texts.map { |text| Shortened.text(text, width) }]
        end
      end

      def relative(text, column)
        return text if Cells::RIGHT.include?(column.kind)

        root = @result.roots.find { |folder| text.start_with?("#{folder}/") }
        root ? text.delete_prefix("#{root}/") : text
      end
    end
  end
end
