# frozen_string_literal: true

require_relative "display"
require_relative "table"

module Probescope
  module Tracing
    # Cuts texts in their middle, which is the least informative part of a function's or a file's
    # name.
    module Shortened
      ELLIPSIS = "…"
      # "app/models/order.rb:12"
      PLACE = %r{\A(?<folder>.*/)(?<file>[^/]+)\z}m

      module_function

      # Column widths that add up to at most `room`. widths: the full widths. may: for each column,
      # whether it may be narrower.
      def widths(widths, may, room)
        fixed = widths.zip(may).sum { |width, narrower| narrower ? 0 : width }
        narrow = widths.zip(may).filter_map { |width, narrower| width if narrower }
        most = narrow.max.to_i
        most -= 1 while most > Display::LEAST_WIDTH && fixed + narrow.sum { |width| [width, most].min } > room
        widths.zip(may).map { |width, narrower| narrower ? [width, most].min : width }
      end

      # The text in at most `width` terminal columns. A file's name and line are kept, if there is
      # room.
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
