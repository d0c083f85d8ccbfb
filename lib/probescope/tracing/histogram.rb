# frozen_string_literal: true

require_relative "display"

module Probescope
  module Tracing
    # Histograms of bpftrace's hist(), whose bucket bounds are powers of two.
    module Histogram
      module_function

      # Buckets from bpftrace's JSON: [{min:, max:, count:}, ...]. A bucket holds values from min up
      # to, but not including, max. Empty buckets at both ends are left out.
      def buckets(values)
        found = Array(values).map do |bucket|
          {min: bucket.fetch("min", 0), max: bucket["max"] && (bucket["max"] + 1), count: bucket["count"]}
        end
        found = found.drop_while { |bucket| bucket[:count].zero? }
        found.reverse.drop_while { |bucket| bucket[:count].zero? }.reverse
      end

      # Adds up several histograms.
      def merge(several)
        counts = several.flatten.each_with_object(Hash.new(0)) do |bucket, sum|
          sum[bucket.values_at(:min, :max)] += bucket[:count]
        end
        counts.sort.map { |(min, max), count| {min: min, max: max, count: count} }
      end

      # Draws a bar for each bucket. The block formats a bound.
      def render(heading, buckets)
        most = buckets.map { |bucket| bucket[:count] }.max
        return unless most

        ranges = buckets.map { |bucket| [yield(bucket[:min]), bucket[:max] ? yield(bucket[:max]) : ""] }
        widths = ranges.transpose.map { |texts| texts.map(&:size).max }
        counts = buckets.map { |bucket| bucket[:count].to_s }
        width = [*counts, "COUNT"].map(&:size).max
        lines = buckets.each_index.map do |i|
          range = ranges[i].zip(widths).map { |text, size| text.rjust(size) }.join(" - ")
          bar = "#" * (buckets[i][:count] * Display::BAR / most.to_f).ceil
          "#{range}  #{counts[i].rjust(width)}  #{bar}".rstrip
        end
        ["#{heading.ljust(widths.sum + 3)}  #{"COUNT".rjust(width)}", *lines].join("\n")
      end
    end
  end
end
