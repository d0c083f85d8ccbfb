# frozen_string_literal: true

require_relative "definitions"

module Probescope
  module Tracing
    # Builds the call tree of one thread from its entries and returns, line by line. A call without
    # shown callees has one line, when it returns. Any other call has one line at its entry and one
    # at its return. With a shortest duration, shorter calls are left out, except for the callers of
    # shown calls.
    class CallTree
      # A call that has not returned.
      Open = Struct.new(:depth, :function, :file, :line, :shown, keyword_init: true)

      # min_ns: the shortest call to show. show: called with {event: "enter" | "leave" | "call",
      # context_id:, depth:, function:, file:, line:, elapsed_ns:, self_ns:, outcome:}; "call" is an
      # entry and its return in one.
      def initialize(min_ns, &show)
        @min_ns = min_ns
        @show = show
        @contexts = Hash.new { |hash, id| hash[id] = [] }
      end

      def enter(context, depth, function, file, line)
        open = @contexts[context]
        # A call that is open at this depth or deeper ended without a return event, as after a
        # SystemStackError.
        open.pop while open.any? && open.last.depth >= depth
        open.each { |call| announce(context, call) } if @min_ns.zero?
        open << Open.new(depth: depth, function: function, file: file, line: line, shown: false)
      end

      def leave(context, depth, elapsed_ns, self_ns, outcome, function)
        open = @contexts[context]
        open.pop while open.any? && open.last.depth > depth
        # Without an open call at this depth, the entry event was lost.
        call = open.last&.depth == depth ? open.pop : Open.new(depth: depth, function: function)
        @contexts.delete(context) if open.empty?
        return unless call.shown || elapsed_ns >= @min_ns

        open.each { |caller| announce(context, caller) }
        tell(context, call, event: call.shown ? "leave" : "call", elapsed_ns: elapsed_ns, self_ns: self_ns,
                            outcome: Definitions::OUTCOMES.fetch(outcome, "returned"))
      end

      # Called when time has passed: shows the calls that are still open.
      def pause
        return unless @min_ns.zero?

        @contexts.each { |context, open| open.each { |call| announce(context, call) } }
      end

      # Called when events were lost: the open calls are no longer known.
      def forget = @contexts.clear

      private

      def announce(context, call)
        return if call.shown

        call.shown = true
        tell(context, call, event: "enter")
      end

      def tell(context, call, event:, elapsed_ns: nil, self_ns: nil, outcome: nil)
        @show.call({event: event, context_id: context, depth: call.depth, function: call.function,
                    file: call.file, line: call.line, elapsed_ns: elapsed_ns, self_ns: self_ns,
                    outcome: outcome})
      end
    end
  end
end
