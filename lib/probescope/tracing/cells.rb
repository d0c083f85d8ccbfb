# frozen_string_literal: true

require "time"
require_relative "clock"
require_relative "display"
require_relative "figure"

module Probescope
  module Tracing
    # The cells of tables. For each kind of column in docs/schema/schemas.yml there is a function of
    # a row and the column's key. An unknown value is shown as "-".
    module Cells
      # Kinds of figures, which are aligned to the right.
      RIGHT = %i[share time time_above_zero count signed decimal bytes number weight change
                 normalised].freeze
      # Kinds by whose figure rows are sorted.
      FIGURES = [*RIGHT, :errors].freeze
      NO_FUNCTION = "(no traced function)"
      # Reasons of offcpu whose words are not their names.
      REASONS = {"vm_lock" => "VM lock", "timer_lock_or_child" => "timer, lock or child",
                 "page_fault" => "page fault", "file_lock" => "file lock",
                 "ready" => "any of several files"}.freeze

      module_function

      # The text of a row in a column (Definitions::Column).
      def of(column, row) = public_send(column.kind, row, column.key)

      # Sorts rows by a column: figures from the largest to the smallest, texts alphabetically. Rows
      # without a known value come last.
      def sorted(rows, column)
        known, unknown = rows.partition { |row| of(column, row) != "-" }
        return known.sort_by { |row| of(column, row) } + unknown unless FIGURES.include?(column.kind)

        known.sort_by.with_index { |row, i| [-row[column.key], i] } + unknown
      end

      def share(row, key) = Figure.share(row[key])
      def time(row, key) = Figure.time(row[key])
      # An event that has no time has no text: a call that begins.
      def time_at_end(row, key) = row[key] ? Figure.time(row[key]) : ""
      def time_above_zero(row, key) = Figure.time(row[key]&.positive? ? row[key] : nil)
      def count(row, key) = Figure.count(row[key])
      def signed(row, key) = row[key]&.negative? ? "-#{Figure.count(-row[key])}" : Figure.count(row[key])
      def decimal(row, key) = Figure.decimal(row[key])
      def bytes(row, key) = Figure.bytes(row[key])
      def number(row, key) = text(row, key)

      def text(row, key) = row[key].to_s.empty? ? "-" : row[key].to_s

      # "app.rb:12"
      def place(row, _key) = row[:file] ? [row[:file], row[:line]].compact.join(":") : "-"

      # "app.rb:12", and whether only the function's definition is there.
      def place_of_wait(row, key) = "#{place(row, key)}#{" (definition)" if row[:line_is] == "definition"}"

      # Rows of single lines have a line_is, and others have not.
      def place_of_definition(row, key) = row.key?(:line_is) ? "-" : place(row, key)
      def place_of_line(row, key) = row.key?(:line_is) ? place_of_wait(row, key) : "-"

      # A figure in the row's unit.
      def weight(row, key)
        case row[:unit]
        when "nanoseconds" then time(row, key)
        when "bytes" then bytes(row, key)
        else signed(row, key)
        end
      end

      # A figure in the row's unit that need not be whole.
      def normalised(row, key)
        row[:unit] == "share" ? share(row, key) : weight(row.merge(key => row[key].round), key)
      end

      # "+12.3 %"
      def change(row, key) = if row[key]
                               "#{row[key].negative? ? "-" : "+"}#{Figure.share(row[key].abs)}"
                             else
                               "-"
                             end

      # "app.rb:12"
      def line_at(row, key) = row[key] ? place(row[key], nil) : "-"

      # Local time of day.
      def clock(row, key) = row[key] ? Clock.of_day(Time.iso8601(row[key])) : "-"

      # The request that a row belongs to.
      def request(row, _key = nil) = joined(row.values_at(:method, :route), " ")

      def largest_builtin(row, key)
        largest = row[key].first
        largest ? "#{share(largest, :share)} #{text(largest, :function)}" : "-"
      end

      # "12.5% Zlib.crc32"
      def largest_called(row, key) = row[key].to_a.empty? ? "-" : largest_builtin(row, key)

      # "7 ENOENT, 2 EACCES". key: how many failed, also those whose error is not known.
      def errors(row, key)
        named = row[:errors].map { |name, count| "#{Figure.count(count)} #{name}" }
        rest = row[key] - row[:errors].values.sum
        joined([*named, ("#{Figure.count(rest)} unknown" if rest.positive?)], ", ")
      end

      # The place of the thread that ended most of the blocked time.
      def largest_holder(row, key)
        largest = row[key].first
        largest ? joined([largest[:function], largest[:file] && place_of_wait(largest, nil)], " at ") : "-"
      end

      # "lock (futex)", with the share of the function's time if there are others.
      def largest_reason(row, key)
        largest = row[key].first or return "-"
        whole, part = [row, largest].map { |one| one[:blocked_ns] + one[:queued_ns] }
        joined([REASONS.fetch(largest[:reason], largest[:reason]), ("(#{largest[:call]})" if largest[:call]),
                (Figure.share(Figure.ratio(part, whole)) if row[key].size > 1)], " ")
      end

      # The function that the waker was in, and the share of the time blocked that it ended.
      def largest_waker(row, key)
        largest = row[key].first or return "-"
        function = joined([largest[:function] || NO_FUNCTION, largest[:file] && place(largest, nil)], " at ")
        "#{function} #{Figure.share(Figure.ratio(*[largest, row].map { |one| one[:blocked_ns] }))}"
      end

      # outside: whether no traced function was open. Otherwise an unknown name is unknown.
      def traced_function(row, key) = row[:outside] ? NO_FUNCTION : text(row, key)

      # "Shop#pay, Shop#serve": the nearest first.
      def callers(row, key) = joined(row[key].to_a.map { |one| text(one, :function) }, ", ")

      def raised_exception(row, key) = joined(row.values_at(key, :raised_at), " at ")

      # Adds the time until which the function was counted, if counting has stopped.
      def counted_function(row, key)
        "#{text(row, key)}#{" (until #{clock(row, :counted_until)})" if row[:counted_until]}"
      end

      # The status of a row with one status only, otherwise the class of its statuses.
      def status(row, key)
        only = row[:statuses].keys
        only.size == 1 && only.first.positive? ? only.first.to_s : text(row, key)
      end

      # Indented below its caller.
      def nested_call(row, key)
        indent = "  " * [row[:depth], Display::DEEPEST].min
        "#{indent}#{text(row, key)}#{"  (raised)" if row[:outcome] == "raised"}"
      end

      # Indented below its caller, with = where it ends, and with its place otherwise.
      def live_call(row, key)
        mark, place = row[:event] == "leave" ? ["= ", nil] : [nil, row[:file] && place(row, nil)]
        outcome = row[:outcome] unless row[:outcome] == "returned"
        indent = "  " * [row[:depth], Display::DEEPEST_LIVE].min
        ["#{indent}#{mark}#{row[key]}", outcome, place].compact.join("  ")
      end

      def lost_rows_and_samples(row, key) = Figure.count(row[key].values_at(:rows, :samples).sum)

      # Texts, or none.
      def words(row, key) = Array(row[key]).join(" ")

      def yes_or_no(row, key) = {true => "yes", false => "no"}.fetch(row[key], "?")

      def path_or_none(row, key) = row[key] || "none"

      # A version, and whether its file was deleted or replaced.
      def library(row, key) = "#{row[key]}#{" gone" if row[:deleted]}"

      # The trace id in a traceparent. A traceparent that is not in W3C's format is shown whole.
      def trace_id(row, key) = row[key] ? row[key][/\A\h\h-(\h{32})-/, 1] || row[key] : "-"

      def joined(parts, by)
        found = parts.compact
        found.empty? ? "-" : found.join(by)
      end
    end
  end
end
