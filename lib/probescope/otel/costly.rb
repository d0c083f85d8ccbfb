# frozen_string_literal: true

module Probescope
  module Otel
    # Finds the raise sites that make up most of the cost of backtraces in the last minute.
    class Costly
      SECONDS = 60
      SHARE = 0.9
      # The most sites of one second. This limits a process that invents sites.
      MOST = 1024

      # Sites that found no room, counted in each second separately.
      attr_reader :left_out

      def initialize
        @seconds = [Hash.new(0)]
        @left_out = 0
      end

      # site: identifies a raise site. cost: ns in this second.
      def add(site, cost)
        second = @seconds.last
        return @left_out += 1 if second.size >= MOST && !second.key?(site)

        second[site] += cost
      end

      # Ends the current second.
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
