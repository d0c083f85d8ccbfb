# frozen_string_literal: true

require "did_you_mean/levenshtein"

module Probescope
  module Tracing
    # Suggests existing names for a name that was not found.
    module Nearest
      # The most names that are compared.
      MOST = 1000

      module_function

      # Up to three of the names, the most likely one first. Names that contain the last part of
      # `wanted` come before others. wanted may be a pattern.
      def names(wanted, names)
        wanted = wanted.downcase.delete("*")
        last = wanted[/[^#.]+\z/].to_s
        names.uniq.first(MOST).min_by(3) do |name|
          lower = name.downcase
          [lower.include?(last) ? 0 : 1, DidYouMean::Levenshtein.distance(lower, wanted), name]
        end
      end
    end
  end
end
