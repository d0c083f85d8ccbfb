# frozen_string_literal: true

require_relative "clock"
require_relative "trace"

module Probescope
  module Host
    # The rows of one command's answer, from the result of one trace, or from the part of it that
    # one process has. A command has a subclass with
    #   rows         hashes with the fields that docs/schema/schemas.yml has for its rows, the most
    #                important row first; what else is in a row is for its cells alone
    #   share(row)   what --min compares, nil where there is no --min
    # and, where the definition in that file is not enough, nothing, not_covered and below.
    class Report
      attr_reader :result

      # definition: Answers::Answer. by_request: are rows of each request by itself?
      def initialize(result, definition, by_request: false)
        @result = result
        @definition = definition
        @by_request = by_request
      end

      # What stands in place of a table without rows.
      def nothing = @definition.nothing

      # What the figures leave out by their nature, a line each.
      def not_covered = ["not covered: #{@definition.not_covered}"].select { @definition.not_covered }

      # Text under the table, or nil. shown: Answer::Shown.
      def below(_shown) = nil

      private

      # {method:, route:} of a row, for its JSON; {} when nobody asked. The row's last name is the
      # request's number.
      def request(row)
        return {} unless @by_request

        method, route = result.requests[Trace.request(row.names.last)]
        {method: route && method, route: route || method}
      end

      # {what => name, file:, line:} of a row whose first three names these are.
      def named(row, what)
        name, file, line = row.names
        {what => known(name), file: known(file), line: known(line)}
      end

      # A place that a program keeps as (file, line): "app.rb:12", or nil.
      def place(row, map) = row.values(map)&.then { |file, line| known(file) && "#{file}:#{line}" }

      # What the process does not know is nil.
      def known(value) = ["", 0].include?(value) ? nil : value

      def sum(rows, key) = rows.sum { |row| row[key] || 0 }

      def ratio(part, whole) = Figure.ratio(part, whole)

      # Largest first, ties by place, so that two runs show the same order.
      def sorted(rows, *keys)
        rows.sort_by { |row| [*keys.map { |key| -(row[key] || 0) }, row.values_at(:file, :line).join(":")] }
      end
    end
  end
end
