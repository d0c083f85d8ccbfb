# frozen_string_literal: true

require "time"
require_relative "clock"
require_relative "figure"

module Probescope
  module Host
    # The cells of tables: a function of a row and a column's key for each kind of column that
    # docs/schema/schemas.yml names. What is not known is "-".
    module Cells
      # Kinds of figures, which are aligned to the right.
      RIGHT = %i[share time time_above_zero count decimal bytes number].freeze
      # Calls are indented up to here.
      DEEPEST = 24

      module_function

      # The text of a column (Answers::Column) in a row.
      def of(column, row) = public_send(column.kind, row, column.key)

      # Rows by a column: figures from the largest to the smallest, texts in their order; what is
      # not known comes last.
      def sorted(rows, column)
        known, unknown = rows.partition { |row| of(column, row) != "-" }
        return known.sort_by { |row| of(column, row) } + unknown unless RIGHT.include?(column.kind)

        known.sort_by.with_index { |row, i| [-row[column.key], i] } + unknown
      end

      def share(row, key) = Figure.share(row[key])
      def time(row, key) = Figure.time(row[key])
      def time_above_zero(row, key) = Figure.time(row[key]&.positive? ? row[key] : nil)
      def count(row, key) = Figure.count(row[key])
      def decimal(row, key) = Figure.decimal(row[key])
      def bytes(row, key) = Figure.bytes(row[key])
      def number(row, key) = text(row, key)

      def text(row, key) = row[key].to_s.empty? ? "-" : row[key].to_s

      # "app.rb:12"
      def place(row, _key) = row[:file] ? [row[:file], row[:line]].compact.join(":") : "-"

      # Time of day on this machine.
      def clock(row, key) = row[key] ? Clock.of_day(Time.iso8601(row[key])) : "-"

      # The request that a row is of.
      def request(row, _key = nil) = joined(row.values_at(:method, :route), " ")

      def largest_builtin(row, key)
        largest = row[key].first
        largest ? "#{share(largest, :share)} #{text(largest, :function)}" : "-"
      end

      def raised_exception(row, key) = joined(row.values_at(key, :raised_at), " at ")

      # A function that is not counted any more says since when.
      def counted_function(row, key)
        "#{text(row, key)}#{" (until #{clock(row, :counted_until)})" if row[:counted_until]}"
      end

      # A row's only status as it is, else their class.
      def status(row, key)
        only = row[:statuses].keys
        only.size == 1 && only.first.positive? ? only.first.to_s : text(row, key)
      end

      # Below the call that made it.
      def nested_call(row, key)
        "#{"  " * [row[:depth], DEEPEST].min}#{text(row, key)}#{"  (raised)" if row[:outcome] == "raised"}"
      end

      # Of a traceparent, which may be of another format than W3C's.
      def trace_id(row, key) = row[key] ? row[key][/\A\h\h-(\h{32})-/, 1] || row[key] : "-"

      def joined(parts, by)
        found = parts.compact
        found.empty? ? "-" : found.join(by)
      end
    end
  end
end
