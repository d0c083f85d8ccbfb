# frozen_string_literal: true

module Probescope
  module Profile
    # Whether two series of values differ by more than chance.
    module Change
      # Fewest values of each series for Welch's test.
      LEAST = 5
      # The quantile 1 - 1e-5 of Student's t by degrees of freedom. Between two, the larger one counts.
      LIMITS = {4 => 23.34, 5 => 15.55, 6 => 12.04, 7 => 10.11, 8 => 8.91, 9 => 8.11, 10 => 7.53, 12 => 6.77,
                14 => 6.29, 16 => 5.96, 20 => 5.55, 25 => 5.25, 30 => 5.06, 40 => 4.84, 60 => 4.64,
                120 => 4.45}.freeze

      module_function

      # Welch's t-test (doi:10.1093/biomet/34.1-2.28). The values of one series are spans of time, so a
      # function that runs for some seconds at a time does not change by chance, as it would where
      # single samples are counted.
      def welch?(before, after)
        (mean, error), (other, other_error) = [before, after].map { |values| mean_and_error(values) }
        error_of_both = error + other_error
        return mean != other if error_of_both.zero?

        freedom = error_of_both**2 / ((error**2 / (before.size - 1)) + (other_error**2 / (after.size - 1)))
        (other - mean).abs > limit(freedom) * Math.sqrt(error_of_both)
      end

      def limit(freedom) = LIMITS.select { |least, _| least <= freedom }.values.last || Float::INFINITY

      # The mean, and its variance.
      def mean_and_error(values)
        mean = values.sum.to_f / values.size
        [mean, values.sum { |value| (value - mean)**2 } / (values.size - 1) / values.size]
      end
    end
  end
end
