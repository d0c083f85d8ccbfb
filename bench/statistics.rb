# frozen_string_literal: true

# Statistics over turns for the Ruby benchmarks. turns.py has those for Python.
module Statistics
  module_function

  def median(values)
    sorted = values.sort
    (sorted[(sorted.size - 1) / 2] + sorted[sorted.size / 2]) / 2.0
  end

  # Returns the mean and its standard error.
  def mean(values)
    mean = values.sum / values.size
    [mean, Math.sqrt(values.sum { |value| (value - mean)**2 } / [values.size - 1, 1].max / values.size)]
  end
end
