# frozen_string_literal: true

require "terminal-table"
require_relative "text"

module Probescope
  module Host
    # Rows for people: aligned columns without rules.
    module Table
      STYLE = {border_left: false, border_right: false, border_top: false, border_bottom: false, border_x: "", border_y: "",
               border_i: "", padding_left: 0, padding_right: 2}.freeze

      module_function

      # headings: strings; those of columns of figures begin with ">" and are aligned to the right. rows: arrays of strings.
      def render(headings, rows)
        cells = rows.map { |row| row.map { |cell| Text.clean(cell) } }
        table = Terminal::Table.new(headings: headings.map { |heading| heading.delete_prefix(">") }, rows: cells, style: STYLE)
        headings.each_with_index { |heading, i| table.align_column(i, :right) if heading.start_with?(">") }
        table.to_s.lines.map(&:rstrip).reject(&:empty?).join("\n")
      end
    end
  end
end
