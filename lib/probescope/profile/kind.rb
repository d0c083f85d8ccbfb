# frozen_string_literal: true

module Probescope
  # What `record` writes: weights of call paths over time, and the formats in which they are stored.
  module Profile
    # What a recording counts. number: in the lines of stacks.bt; nil for a kind of another tool's file.
    # counts, weighs, looked: [type, unit] of a value in a pprof file. looked is nil where the count
    # says how many stacks were read, and counts is nil where the file has no count.
    Kind = Struct.new(:name, :number, :counts, :weighs, :looked, keyword_init: true) do
      def unit = weighs.last

      # The types of a sample's values, in their order.
      def types = [counts, weighs, looked].compact

      # The kind in metadata. A later version that knows other kinds can be read by this.
      def described = {name: name, unit: unit, counts: counts, weighs: weighs, looked: looked}
    end

    # Every kind that stacks.bt counts.
    KINDS = [
      Kind.new(name: "cpu", number: 1, counts: %w[samples count], weighs: %w[cpu nanoseconds])
    ].each(&:freeze).freeze
  end
end
