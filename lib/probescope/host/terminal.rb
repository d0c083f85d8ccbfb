# frozen_string_literal: true

require "io/console"

module Probescope
  module Host
    # How wide a terminal is, and whether what it shows may have colours.
    class Terminal
      COLORS = %w[auto always never].freeze
      # Escape codes: of shares that are large, and of warnings.
      CODES = {hot: "\e[1;31m", warm: "\e[33m", warning: "\e[33m"}.freeze
      PLAIN = "\e[0m"
      # From which share on a cell is coloured.
      HEAT = {hot: 0.2, warm: 0.05}.freeze
      # A narrower table has no room for names.
      NARROWEST = 60

      # Columns; nil where the output is no terminal: nothing is shortened then.
      attr_reader :width

      # io: what is written to. color: one of COLORS. NO_COLOR (https://no-color.org) holds for
      # auto.
      def initialize(io, color: "auto", env: ENV)
        terminal = io.respond_to?(:tty?) && io.tty?
        @width = [columns(io, env), NARROWEST].max if terminal
        @colored = color == "always" ||
                   (color == "auto" && terminal && env["NO_COLOR"].to_s.empty? && env["TERM"] != "dumb")
      end

      # In the colour of a kind of CODES, or as it is for nil.
      def paint(text, kind) = kind && @colored ? "#{CODES.fetch(kind)}#{text}#{PLAIN}" : text

      # For a share: a kind of CODES, or nil.
      def self.heat(share) = HEAT.find { |_, least| share && share >= least }&.first

      private

      def columns(io, env)
        given = Integer(env["COLUMNS"].to_s, exception: false)
        return given if given&.positive?

        width = io.winsize.last
        width.positive? ? width : 80
      rescue SystemCallError
        80
      end
    end
  end
end
