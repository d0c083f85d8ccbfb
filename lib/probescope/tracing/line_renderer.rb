# frozen_string_literal: true

require_relative "cells"
require_relative "definitions"
require_relative "text"

module Probescope
  module Tracing
    # Renders the lines of a command that prints each event as it comes.
    class LineRenderer
      def initialize(command)
        @columns = Definitions::LINES.fetch(command).columns
      end

      def heading = line(@columns.map(&:heading))

      # row: the object that JSON has for the line.
      def text(row) = line(@columns.map { |column| Text.clean(Cells.of(column, row)) })

      private

      def line(cells)
        cells.zip(@columns).map do |cell, column|
          column.width ? " #{cell}".rjust(column.width) : "  #{cell}"
        end.join
      end
    end
  end
end
