# frozen_string_literal: true

module Probescope
  module Tracing
    # Times in the buckets of providers/requests.bt: sixteen steps for each power of two, in ns.
    class Steps
      STEPS = 16

      # counts: {step => count}
      def initialize(counts)
        @counts = counts.sort
        @total = counts.values.sum
      end

      # The time that this share of the requests took at most: the middle of its step, but never
      # more than max. nil without requests.
      def quantile(share, max)
        wanted = (@total * share).ceil
        seen = 0
        step, = @counts.find { |_, count| (seen += count) >= wanted }
        step && [middle(step), max].compact.min
      end

      # Buckets of powers of two, as in Histogram.
      def histogram
        @counts.group_by { |step, _| step / STEPS }.map do |power, steps|
          {min: 1 << power, max: 2 << power, count: steps.sum(&:last)}
        end
      end

      private

      def middle(step)
        power, part = step.divmod(STEPS)
        return 1 << power if power < 4

        ((STEPS + part) << (power - 4)) + (1 << (power - 4)) / 2
      end
    end
  end
end
