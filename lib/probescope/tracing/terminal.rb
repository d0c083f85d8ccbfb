# frozen_string_literal: true

require "io/console"
require_relative "display"

module Probescope
  module Tracing
    # The width of a terminal, and colours where the terminal shows them.
    class Terminal
      COLORS = %w[auto always never].freeze
      # Escape codes for large shares and for warnings.
      CODES = {hot: "\e[1;31m", warm: "\e[33m", warning: "\e[33m"}.freeze
      PLAIN = "\e[0m"
      # The share from which on a cell is coloured.
      HEAT = {hot: Display::HOT, warm: Display::WARM}.freeze

      # Columns of the terminal. nil where the output is no terminal; then nothing is shortened.
      attr_reader :width

      # io: the stream that is written to. color: one of COLORS. auto respects NO_COLOR
      # (https://no-color.org).
      def initialize(io, color: "auto", env: ENV)
        terminal = io.respond_to?(:tty?) && io.tty?
        @width = [columns(io, env), Display::NARROWEST].max if terminal
        @colored = color == "always" ||
                   (color == "auto" && terminal && env["NO_COLOR"].to_s.empty? && env["TERM"] != "dumb")
      end

      # The text in the colour of a key of CODES; unchanged for nil.
      def paint(text, kind) = kind && @colored ? "#{CODES.fetch(kind)}#{text}#{PLAIN}" : text

      # The key of CODES for a share, or nil.
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
