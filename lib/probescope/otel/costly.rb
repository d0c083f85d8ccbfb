# frozen_string_literal: true

module Probescope
  module Otel
    # The raise sites that make up most of what backtraces cost in the last minute.
    class Costly
      SECONDS = 60
      SHARE = 0.9
      # Sites of one second. A process that invents them has no more.
      MOST = 1024

      # Sites that found no room, each second's by itself.
      attr_reader :left_out

      def initialize
        @seconds = [Hash.new(0)]
        @left_out = 0
      end

      # site: anything that tells sites apart. cost: ns in this second.
      def add(site, cost)
        second = @seconds.last
        return @left_out += 1 if second.size >= MOST && !second.key?(site)

        second[site] += cost
      end

      # The second is over.
      def tick
        @sites = nil
        @seconds << Hash.new(0)
        @seconds.shift while @seconds.size > SECONDS
      end

      def include?(site) = sites.include?(site)

      private

      def sites
        @sites ||= begin
          costs = @seconds.reduce { |all, second| all.merge(second) { |_, one, other| one + other } }
          left = costs.values.sum * SHARE
          dearest = costs.sort_by { |_, cost| -cost }
          dearest.take_while { |_, cost| (left > 0).tap { left -= cost } }.map(&:first)
        end
      end
    end
  end
end
