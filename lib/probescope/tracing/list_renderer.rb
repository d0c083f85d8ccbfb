# frozen_string_literal: true

require_relative "cells"
require_relative "definitions"
require_relative "table"

module Probescope
  module Tracing
    # Renders what a command lists as a table.
    module ListRenderer
      module_function

      # field: of the command's JSON, which has these rows.
      def text(command, field, rows)
        columns = Definitions::LISTS.fetch(command).fetch(field)
        cells = rows.map { |row| columns.map { |column| Cells.of(column, row) } }
        right = columns.select { |column| Cells::RIGHT.include?(column.kind) }.map(&:heading)
        Table.render(columns.map(&:heading), cells, right: right)
      end
    end
  end
end
