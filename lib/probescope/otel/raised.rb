# frozen_string_literal: true

require "opentelemetry/sdk"
require "set"

module Probescope
  module Otel
    # Keeps the exceptions of one process until they are added to the span of the call or request in
    # which they were raised. The spans carry exceptions because a viewer of traces may not show log
    # records. Whether an exception is sent is decided at the end of its second; calls and requests
    # wait for that.
    class Raised
      # The most exceptions that wait for their call, which may never come.
      MOST = 1024

      def initialize
        @undecided = Set.new # traceparents
        @wanted = {} # traceparent => [[Lines::DETAIL's event, the SDK's], ...], the oldest first
        @size = 0
        @calls = {} # traceparent => {Lines::SLOW's event => true}, calls that are not sent yet
      end

      # call: the event of Lines::SLOW, which is later passed to #of in a tree.
      def expect(call)
        (@calls[call.text] ||= {}.compare_by_identity)[call] = true unless call.text.empty?
      end

      # detail: the event of Lines::DETAIL. It is kept only if a span of the application is around
      # it.
      def add(detail) = (@undecided << detail.text unless detail.text.empty?)

      # wanted: [[detail, SDK's Event], ...], those of the added exceptions that are sent.
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

      # {node => [SDK's Event, ...]} of a tree. An exception belongs to the innermost call in which
      # it was raised.
      def of(tree)
        found = {}.compare_by_identity
        calls = tree.to_enum(:each).map { |node,| node }.group_by { |node| node.event.text }
        calls.each { |text, nodes| forget(text, nodes) }
        calls.slice(*@wanted.keys).each { |text, nodes| give(nodes, text, found) }
        found
      end

      # [SDK's Event, ...] of the request with that traceparent: the exceptions that were not raised
      # in a call which is still to be sent.
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

      # Removes the exceptions for which the block returns true.
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
