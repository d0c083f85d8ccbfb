# frozen_string_literal: true

require_relative "error"

module Probescope
  module Tracing
    # The reason why a foreign process is not read, or cannot be traced. kind: :gone, :denied (by the
    # kernel), :not_loaded, :malformed (its data is inconsistent), :busy (it is writing), :slow (it
    # was not read in time), :untrusted, :other.
    class Refused < Error
      attr_reader :kind

      def initialize(kind, message, next_step = nil)
        super(message, next_step)
        @kind = kind
      end

      def self.malformed(message) = new(:malformed, message)
    end
  end
end
