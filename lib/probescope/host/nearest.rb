# frozen_string_literal: true

require "did_you_mean/levenshtein"

module Probescope
  module Host
    # For a name that was asked for and is not there: which of those that are there may have been
    # meant.
    module Nearest
      # So many are looked at, at most.
      MOST = 1000

      module_function

      # Up to three of the names, the most likely one first: those that have its last part. wanted
      # may be a pattern.
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
