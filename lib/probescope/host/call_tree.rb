# frozen_string_literal: true

module Probescope
  module Host
    # Makes a tree out of the entries and returns of one thread, line by line: a call that calls
    # nothing shown has one line, when it returns; another one has a line when it is entered and one
    # when it returns. Below a duration, calls are left out, but for the callers of what is shown.
    class CallTree
      OUTCOMES = {0 => "returned", 1 => "raised", 2 => "suspended"}.freeze

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
        # What is open at this depth or deeper was left without a word, as by a SystemStackError.
        open.pop while open.any? && open.last.depth >= depth
        open.each { |call| announce(context, call) } if @min_ns.zero?
        open << Open.new(depth: depth, function: function, file: file, line: line, shown: false)
      end

      def leave(context, depth, elapsed_ns, self_ns, outcome, function)
        open = @contexts[context]
        open.pop while open.any? && open.last.depth > depth
        # Without an entry its own was lost.
        call = open.last&.depth == depth ? open.pop : Open.new(depth: depth, function: function)
        @contexts.delete(context) if open.empty?
        return unless call.shown || elapsed_ns >= @min_ns

        open.each { |caller| announce(context, caller) }
        tell(context, call, event: call.shown ? "leave" : "call", elapsed_ns: elapsed_ns, self_ns: self_ns,
                            outcome: OUTCOMES.fetch(outcome, "returned"))
      end

      # Time has passed: who watches wants to see in which call.
      def pause
        return unless @min_ns.zero?

        @contexts.each { |context, open| open.each { |call| announce(context, call) } }
      end

      # Events are missing: what was open is not known any more.
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
