# frozen_string_literal: true

require_relative "complaints"
require_relative "error"

module Probescope
  module Tracing
    # Explains bpftrace's error messages, and quotes them.
    module Complaint
      MOST_LINES = 20

      module_function

      # An Error for the text that bpftrace printed. what: what bpftrace failed to do. next_step:
      # used where the text matches no known message.
      def error(text, what, next_step)
        lines = lines(text)
        _, meaning, step = Complaints::MEANINGS.find { |pattern, _| lines.any?(pattern) }
        said = lines.empty? ? "it ended by itself" : "it says: #{shown(lines).join("; ")}"
        Error.new("bpftrace #{what}#{": #{meaning}" if meaning}; #{said}", step || next_step)
      end

      # The lines of the text, without noise.
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
