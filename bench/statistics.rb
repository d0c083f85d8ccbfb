# frozen_string_literal: true

# What the Ruby benchmarks make of their turns; those of Python have turns.py.
module Statistics
  module_function

  def median(values)
    sorted = values.sort
    (sorted[(sorted.size - 1) / 2] + sorted[sorted.size / 2]) / 2.0
  end

  # The mean and its standard error.
  def mean(values)
    mean = values.sum / values.size
    [mean, Math.sqrt(values.sum { |value| (value - mean)**2 } / [values.size - 1, 1].max / values.size)]
  end
end
