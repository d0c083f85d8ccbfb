# frozen_string_literal: true

require_relative "complaints"
require_relative "error"

module Probescope
  module Host
    # What bpftrace complains of, in words of ours, with its own behind them.
    module Complaint
      MOST_LINES = 20

      module_function

      # An Error for that text of bpftrace's. what: what it was to do. next_step: where the text is
      # none that we know.
      def error(text, what, next_step)
        lines = lines(text)
        _, meaning, step = Complaints::MEANINGS.find { |pattern, _| lines.any?(pattern) }
        said = lines.empty? ? "it ended by itself" : "it says: #{shown(lines).join("; ")}"
        Error.new("bpftrace #{what}#{": #{meaning}" if meaning}; #{said}", step || next_step)
      end

      # Without noise.
      def lines(text)
        text.to_s.lines.map(&:strip).reject { |line| line.empty? || line.match?(Complaints::NOISE) }
      end

      def shown(lines)
        more = lines.size - MOST_LINES
        more.positive? ? [*lines.first(MOST_LINES), "and #{more} more lines"] : lines
      end
    end
  end
end
