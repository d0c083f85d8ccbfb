# frozen_string_literal: true

require_relative "../tracing/text"
require_relative "lines"

module Probescope
  module Otel
    # Keeps the requests of one process until they become spans. A request waits for the exceptions
    # that were raised in it: their lines may come later, because bpftrace reads one buffer for each
    # CPU, and whether an exception is sent is decided at the end of its second.
    class Requests
      # Seconds that a request waits: GRACE for lines that are read later, PATIENCE at most.
      GRACE = 1.0
      PATIENCE = 5.0
      # The most requests that wait.
      MOST = 4096
      # The most requests with some parts whose last line has not come yet.
      UNDER_WAY = 64
      PARTS = Lines::PARTS.to_h { |name, kind| [kind.event, name] }.freeze
      EVENTS = [*PARTS.keys, Lines::WORDS.event].freeze

      One = Struct.new(:event, :parts, :since)

      # raised: a Raised, or nil. The block takes each request that is ready: the event, {part =>
      # text}, and the SDK's Events.
      def initialize(raised, &block)
        @raised = raised
        @ready = block
        @parts = {} # span id => texts
        @waiting = {} # span id => One, the oldest first
      end

      def size = @waiting.size

      # event: one of EVENTS. The event of the request itself follows, or came just before.
      def part(event)
        one = @waiting[event.span_id]
        @parts.shift if !one && @parts.size >= UNDER_WAY
        (one ? one.parts : @parts[event.span_id] ||= {}).update(texts(event))
      end

      # event: the event of Lines::REQUEST. now: seconds.
      def add(event, now)
        @waiting[event.span_id] = One.new(event, @parts.delete(event.span_id) || {}, now)
        let_go(@waiting.first.last) while @waiting.size > MOST
      end

      def expire(now)
        @waiting.each_value.take_while { |one| now - one.since > GRACE }.each do |one|
          let_go(one) if now - one.since > PATIENCE || !@raised&.undecided_in?(one.event.text)
        end
      end

      # Releases all requests, because no more events will come.
      def finish = (let_go(@waiting.first.last) while @waiting.any?)

      private

      def texts(event)
        return {PARTS[event.class] => Tracing::Text.clean(event.text)} if PARTS.key?(event.class)

        texts = Lines::WORDS.words.to_h { |field| [field, Tracing::Text.clean(event[field])] }
        texts.reject { |_, text| text.empty? }
      end

      def let_go(one)
        @waiting.delete(one.event.span_id)
        @ready.call(one.event, one.parts, @raised&.of_request(one.event.text))
      end
    end
  end
end
