# frozen_string_literal: true

module Probescope
  module Tracing
    # An error for the user: what failed, in one line, and what to do.
    class Error < StandardError
      attr_reader :next_step

      def initialize(message, next_step = nil)
        super(message)
        @next_step = next_step
      end

      def in_one_line = [message, next_step].compact.join("; try: ")
    end

    # An option that cannot be used, or not with these processes. The command's exit status is 2.
    class Misused < Error; end
  end
end
