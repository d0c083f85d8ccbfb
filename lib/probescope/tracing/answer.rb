# frozen_string_literal: true

require_relative "cells"
require_relative "report"

module Probescope
  module Tracing
    # What a command shows of a trace: the rows of its report, without rows below --min and rows
    # beyond --top.
    class Answer
      # rows: the rows to show. below: how many rows are below --min. more: how many other rows are
      # beyond --top. reports: the Reports that made the rows. rest: further rows of JSON.
      Shown = Struct.new(:rows, :below, :more, :reports, :rest)

      # The command's name, its definition (Definitions::Definition), and the result (Result) of the
      # whole trace.
      attr_reader :command, :definition, :result
      # The warnings that were printed on stderr.
      attr_reader :warnings

      # min: percent. top: number of rows, 0 for all. sort: the column (Definitions::Column) to sort
      # by, nil for the report's own order. The block makes the Report of a result.
      def initialize(command, definition, result, min: 0, top: 0, sort: nil, by_pid: false,
                     by_request: false, warnings: [], &report)
        @command = command
        @definition = definition
        @result = result
        @min = min
        @top = top
        @sort = sort
        @by_pid = by_pid
        @by_request = by_request
        @warnings = warnings
        @make = report
      end

      attr_reader :min

      def by_pid? = @by_pid
      def by_request? = @by_request

      # The Report of the whole trace, for the texts around the rows.
      def report = @report ||= @make.call(result)

      def shown = @shown ||= @by_pid ? apart : part(report)

      private

      def part(report)
        found = @sort ? Cells.sorted(report.rows, @sort) : report.rows
        wanted = found.select { |row| (report.share(row) || 0) * 100 >= @min }
        rows = @top.positive? ? wanted.first(@top) : wanted
        Shown.new(rows, found.size - wanted.size, wanted.size - rows.size, [report], report.rest)
      end

      # Each process separately: shares are of the process, and --top and --min apply to each
      # process.
      def apart
        parts = result.by_process.map do |pid, one|
          part(@make.call(one)).tap do |shown|
            [shown.rows, shown.rest].each { |rows| rows.map! { |row| {pid: pid}.merge(row) } }
          end
        end
        Shown.new(parts.flat_map(&:rows), parts.sum(&:below), parts.sum(&:more), parts.flat_map(&:reports),
                  parts.flat_map(&:rest))
      end
    end
  end
end
