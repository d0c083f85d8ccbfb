# frozen_string_literal: true

require_relative "text"

module Probescope
  module Tracing
    # Aligned columns, without lines between them.
    module Table
      # Characters that take two columns of a terminal: the blocks that Unicode calls wide or
      # fullwidth, and emoji.
      WIDE = /[\u1100-\u115f\u2329\u232a\u2e80-\u303e\u3041-\u3247\u3250-\u4dbf\u4e00-\ua4cf\ua960-\ua97c]|
              [\uac00-\ud7a3\uf900-\ufaff\ufe10-\ufe19\ufe30-\ufe6f\uff01-\uff60\uffe0-\uffe6]|
              [\u{16fe0}-\u{18d8f}\u{1aff0}-\u{1b2ff}\u{1f200}-\u{1f2ff}]|
              [\u{20000}-\u{3fffd}\p{Emoji_Presentation}&&[^\u{1f1e6}-\u{1f1ff}]]/x
      # Characters that combine with the previous one, and take no column.
      COMBINING = /[\p{Mn}\p{Me}]/

      module_function

      # headings: texts. rows: arrays of texts. right: headings of the columns that are aligned to
      # the right, which hold figures. The block may replace a padded cell; it receives the cell,
      # and the indexes of its row and column.
      def render(headings, rows, right: [], &change)
        columns = headings.each_with_index.map do |heading, i|
          column([heading, *rows.map { |row| Text.clean(row[i]) }], right: right.include?(heading))
        end
        lines = columns.transpose
        if change
          lines.drop(1).each_with_index do |line, row|
            line.map!.with_index { |cell, i| change.call(cell, row, i) }
          end
        end
        lines.map { |line| line.join("  ").rstrip }.join("\n")
      end

      # texts: a heading, which is aligned to the left, and the cells.
      def column(texts, right:)
        room = texts.map { |text| width(text) }.max
        texts.each_with_index.map do |text, i|
          space = " " * (room - width(text))
          right && i.positive? ? space + text : text + space
        end
      end

      # The width in columns of a terminal.
      def width(text) = text.length + text.scan(WIDE).length - text.scan(COMBINING).length
    end
  end
end
