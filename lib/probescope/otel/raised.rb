# frozen_string_literal: true

require "opentelemetry/sdk"
require "set"

module Probescope
  module Otel
    # Exceptions of one process on their way to the spans of the calls that they were raised in, or
    # of the request: what shows traces need not take log records. Whether one is wanted is known at
    # the end of its second; calls and requests wait for that.
    class Raised
      # Wanted ones that wait for their call, which may never come.
      MOST = 1024

      def initialize
        @undecided = Set.new # of traceparents
        @wanted = {} # [[Lines::DETAIL's event, the SDK's], ...] by traceparent, the oldest first
        @size = 0
        @calls = {} # calls that are not sent yet, by traceparent: {Lines::SLOW's event => true}
      end

      # call: Lines::SLOW's event, which #of will be asked of.
      def expect(call)
        (@calls[call.text] ||= {}.compare_by_identity)[call] = true unless call.text.empty?
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
        tree.each { |node,| return true if undecided_in?(node.event.text) } if @undecided.any?
        false
      end

      def undecided_in?(traceparent) = @undecided.include?(traceparent)

      # {node => [SDK's Event, ...]} of a tree, each below the innermost call that it was raised in.
      def of(tree)
        found = {}.compare_by_identity
        calls = tree.to_enum(:each).map { |node,| node }.group_by { |node| node.event.text }
        calls.each { |text, nodes| forget(text, nodes) }
        calls.slice(*@wanted.keys).each { |text, nodes| give(nodes, text, found) }
        found
      end

      # [SDK's Event, ...] of the request with that traceparent: those that no call is around which
      # is still to be sent.
      def of_request(text)
        found = []
        take(text) do |detail, event|
          found << event if @calls.fetch(text, {}).none? { |call,| around?(call, detail) }
        end
        found
      end

      private

      def forget(text, nodes)
        calls = @calls[text] or return
        nodes.each { |node| calls.delete(node.event) }
        @calls.delete(text) if calls.empty?
      end

      def give(nodes, text, found)
        take(text) do |detail, event|
          call = nodes.select { |node| around?(node.event, detail) }.min_by { |node| node.event.elapsed }
          (found[call] ||= []) << event if call
        end
      end

      # Out of the wanted ones, those that the block has a place for.
      def take(text, &block)
        all = @wanted[text] or return
        left = all.reject(&block)
        @size -= all.size - left.size
        left.empty? ? @wanted.delete(text) : @wanted[text] = left
      end

      def around?(call, detail)
        call.thread_id == detail.thread_id && detail.at.between?(call.at - call.elapsed, call.at)
      end
    end
  end
end
