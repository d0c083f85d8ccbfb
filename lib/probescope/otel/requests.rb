# frozen_string_literal: true

require_relative "../host/text"
require_relative "lines"

module Probescope
  module Otel
    # Requests of one process on their way to spans. A request waits for what was raised in it:
    # lines come of one buffer for each CPU, and whether an exception is wanted is known at the end
    # of its second.
    class Requests
      # Seconds: for lines that are read after it, and at most.
      GRACE = 1.0
      PATIENCE = 5.0
      # More than these do not wait.
      MOST = 4096
      # Requests that a line has come of, and not the one that ends them.
      UNDER_WAY = 64
      PARTS = Lines::PARTS.to_h { |name, kind| [kind.event, name] }.freeze
      EVENTS = [*PARTS.keys, Lines::WORDS.event].freeze

      One = Struct.new(:event, :parts, :since)

      # raised: a Raised, or nil. The block takes requests that are ready: the event, {part =>
      # text}, the SDK's Events.
      def initialize(raised, &block)
        @raised = raised
        @ready = block
        @parts = {} # by span id
        @waiting = {} # One by span id, the oldest first
      end

      def size = @waiting.size

      # event: one of EVENTS. The request's own follows, or has come just before.
      def part(event)
        one = @waiting[event.span_id]
        @parts.shift if !one && @parts.size >= UNDER_WAY
        (one ? one.parts : @parts[event.span_id] ||= {}).update(texts(event))
      end

      # event: Lines::REQUEST's. now: seconds.
      def add(event, now)
        @waiting[event.span_id] = One.new(event, @parts.delete(event.span_id) || {}, now)
        let_go(@waiting.first.last) while @waiting.size > MOST
      end

      def expire(now)
        @waiting.each_value.take_while { |one| now - one.since > GRACE }.each do |one|
          let_go(one) if now - one.since > PATIENCE || !@raised&.undecided_in?(one.event.text)
        end
      end

      # Nothing more will come.
      def finish = (let_go(@waiting.first.last) while @waiting.any?)

      private

      def texts(event)
        return {PARTS[event.class] => Host::Text.clean(event.text)} if PARTS.key?(event.class)

        texts = Lines::WORDS.words.to_h { |field| [field, Host::Text.clean(event[field])] }
        texts.reject { |_, text| text.empty? }
      end

      def let_go(one)
        @waiting.delete(one.event.span_id)
        @ready.call(one.event, one.parts, @raised&.of_request(one.event.text))
      end
    end
  end
end
