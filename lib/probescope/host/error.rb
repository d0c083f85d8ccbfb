# frozen_string_literal: true

module Probescope
  module Host
    # What went wrong, in one line for the user, and what to do about it.
    class Error < StandardError
      attr_reader :next_step

      def initialize(message, next_step = nil)
        super(message)
        @next_step = next_step
      end

      def in_one_line = [message, next_step].compact.join("; try: ")
    end
  end
end
