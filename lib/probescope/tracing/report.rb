# frozen_string_literal: true

require_relative "clock"
require_relative "result"

module Probescope
  module Tracing
    # The rows of one command's answer, from the result of one trace, or from the part of one
    # process. A command defines a subclass with
    #   rows         Hashes with the fields that docs/schema/schemas.yml lists for its rows, the
    #                most important row first; other keys of a Hash are for its cells only
    # and, with --min, share(row). Where the definition in that file is not enough, it also defines
    # nothing, above, not_covered, more or below.
    class Report
      # What could not be read from the memory of the process.
      UNKNOWN = "(unknown)"
      BEYOND_THE_END = "also counted: what came after the end of the interval, until bpftrace had detached " \
                       "or the process had ended"
      # The programs read so many bytes of a name. The library has shortened files to fewer.
      NAME_BYTES = 63
      # The maps with names among their values.
      NAMED = %w[row request holder function].freeze

      attr_reader :result

      # definition: Definitions::Definition. by_request: whether each request has its own rows.
      def initialize(result, definition, by_request: false)
        @result = result
        @definition = definition
        @by_request = by_request
      end

      # The share of a row that --min compares; nil without --min.
      def share(_row) = nil

      # Further rows of JSON, which no option sorts or hides.
      def rest = []

      # The columns of the table.
      def columns = @definition.columns

      # The text in place of a table without rows.
      def nothing = @definition.nothing

      # The line above the table, or nil.
      def above = nil

      # The command's own fields in JSON, beside those of every table.
      def more = {}

      # What the figures never cover, or cover beyond the interval, and what names lack, one text each.
      def not_covered
        [*("not covered: #{@definition.not_covered}" if @definition.not_covered),
         *(BEYOND_THE_END if live? && result.goes_on?), *cut_names]
      end

      # The text under the table, or nil. shown: Answer::Shown.
      def below(_shown) = nil

      private

      # Whether the program counts events when they happen, and not the rows of a flush.
      def live? = false

      def cut_names
        names = NAMED.flat_map { |map| result.values(map) }.flatten.grep(String).uniq
        cut = names.count { |name| cut?(name, NAME_BYTES) }
        "names that may be cut after #{NAME_BYTES} bytes: #{Figure.count(cut)}" if cut.positive?
      end

      # Whether a text of a program that reads so many bytes may be cut. The end of a cut character takes
      # up to three bytes. Output replaces what is no UTF-8 by a character of three bytes.
      def cut?(text, bytes)
        length = text.bytesize - (2 * text.count("\uFFFD"))
        length >= bytes - (text.end_with?("\uFFFD") ? 2 : 0)
      end

      # {method:, route:} of a row, for its JSON; {} without --by-request. The row's last name is
      # the number of the request.
      def request(row)
        return {} unless @by_request

        method, route = result.requests[Result.request(row.names.last)]
        {method: method, route: route}
      end

      # The same for a number of a program that reads the request from the process: 0 for none.
      def request_of(number)
        return {} unless @by_request

        number = Result.request(number)
        method, route = result.requests[number] || [nil, (UNKNOWN unless number.zero?)]
        {method: method, route: route}
      end

      # {what => name, file:, line:} of a row whose first three names are these.
      def named(row, what)
        name, file, line = row.names
        {what => known(name), file: known(file), line: known(line)}
      end

      # A place that a program stores as (file, line): "app.rb:12", or nil.
      def place(row, map) = row.values(map)&.then { |file, line| known(file) && "#{file}:#{line}" }

      # nil for an empty name or a 0, which stand for unknown values.
      def known(value) = ["", 0].include?(value) ? nil : value

      def sum(rows, key) = rows.sum { |row| row[key] || 0 }

      def ratio(part, whole) = Figure.ratio(part, whole)

      # How many there were in each second of the interval; nil without an interval.
      def per_second(count) = ratio(count, result.seconds)&.round(3)

      # Sorts by the keys, the largest value first. Ties are sorted by place, waits of one place by what
      # they wait for, and requests by name, so that two runs show the same order.
      def sorted(rows, *keys)
        rows.sort_by do |row|
          place = row.values_at(:file, :line).join(":")
          names = row.values_at(:what, :call, :method, :route).map(&:to_s)
          [*keys.map { |key| -(row[key] || 0) }, place, *names]
        end
      end
    end
  end
end
