# frozen_string_literal: true

require "opentelemetry/sdk"
require "set"

module Probescope
  module Otel
    # Exceptions of one process on their way to the spans of the calls that they were raised in: what shows traces need not take
    # log records. Whether one is wanted is known at the end of its second; the calls wait for that.
    class Raised
      # Wanted ones that wait for their call, which may never come.
      MOST = 1024

      def initialize
        @undecided = Set.new # of traceparents
        @wanted = {} # [[Lines::DETAIL's event, the SDK's], ...] by traceparent, the oldest first
        @size = 0
      end

      # detail: Lines::DETAIL's. One without a span of the application around it is not kept.
      def add(detail) = (@undecided << detail.text unless detail.text.empty?)

      # wanted: [[detail, SDK's Event], ...] of all that were added so far.
      def decide(wanted)
        @undecided.clear
        wanted.each do |pair|
          next if pair.first.text.empty?

          (@wanted[pair.first.text] ||= []) << pair
          @size += 1
        end
        @size -= @wanted.shift.last.size while @size > MOST
      end

      def undecided?(tree)
        tree.each { |node,| return true if @undecided.include?(node.event.text) } if @undecided.any?
        false
      end

      # {node => [SDK's Event, ...]} of a tree, each below the innermost call that it was raised in.
      def of(tree)
        found = {}.compare_by_identity
        return found if @wanted.empty?

        calls = tree.to_enum(:each).map { |node,| node }.group_by { |node| node.event.text }
        calls.slice(*@wanted.keys).each { |text, nodes| give(nodes, text, found) }
        found
      end

      private

      def give(nodes, text, found)
        left = @wanted[text].reject do |detail, event|
          call = nodes.select { |node| around?(node.event, detail) }.min_by { |node| node.event.elapsed }
          (found[call] ||= []) << event if call
        end
        @size -= @wanted[text].size - left.size
        left.empty? ? @wanted.delete(text) : @wanted[text] = left
      end

      def around?(call, detail) = call.thread_id == detail.thread_id && detail.at.between?(call.at - call.elapsed, call.at)
    end
  end
end
