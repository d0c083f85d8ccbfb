# frozen_string_literal: true

require_relative "table"

module Probescope
  module Host
    # Texts cut in their middle, where names of functions and files say least.
    module Shortened
      ELLIPSIS = "…"
      # No column becomes narrower.
      LEAST = 16
      # "app/models/order.rb:12"
      PLACE = %r{\A(?<folder>.*/)(?<file>[^/]+)\z}m

      module_function

      # The widths of columns, so that all of them together take no more than `room`. may: which of
      # them may become narrower.
      def widths(widths, may, room)
        fixed = widths.zip(may).sum { |width, narrower| narrower ? 0 : width }
        narrow = widths.zip(may).filter_map { |width, narrower| width if narrower }
        most = narrow.max.to_i
        most -= 1 while most > LEAST && fixed + narrow.sum { |width| [width, most].min } > room
        widths.zip(may).map { |width, narrower| narrower ? [width, most].min : width }
      end

      # Of at most so many columns of a terminal. Of a file's path the name and the line stay, if
      # there is room.
      def text(text, width)
        return text if Table.width(text) <= width

        match = text.match(PLACE)
        rest = match ? width - Table.width(match[:file]) - 2 : 0
        return "#{head(match[:folder], rest)}#{ELLIPSIS}/#{match[:file]}" if rest.positive?

        tail_width = (width - 1) / 2
        "#{head(text, width - 1 - tail_width)}#{ELLIPSIS}#{head(text.reverse, tail_width).reverse}"
      end

      def head(text, width)
        found = text[0, width]
        found = found[0...-1] while Table.width(found) > width
        found
      end
    end
  end
end
