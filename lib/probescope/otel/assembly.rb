# frozen_string_literal: true

module Probescope
  module Otel
    # Puts the slow calls of one process together. A call's event comes when it ends, so those that it made come first: they wait
    # for it, and a whole tree of calls comes out at once. What waits too long, or for too many others, comes out without its
    # caller. Nothing is ever left out here.
    class Assembly
      # Seconds.
      WAIT = 10
      MOST = 4096
      # Callers that have been waited for in vain, such as a main loop: nothing waits for them again.
      VAIN = 256

      # A call and those that it made.
      Node = Struct.new(:event, :callees, :late, :due) do
        # Each node below this one and itself, callers first; yields it and the node of its caller.
        def each
          pending = [[self, nil]]
          while (node, caller = pending.pop)
            yield node, caller
            node.callees.reverse_each { |callee| pending << [callee, node] }
          end
        end

        def size
          count = 0
          each { count += 1 }
          count
        end
      end

      # Calls whose caller did not come in time.
      attr_reader :late

      # The block takes each tree.
      def initialize(&block)
        @released = block
        @waiting = {} # by the id of the caller, the oldest first: nodes
        @vain = {}
        @size = 0
        @late = 0
      end

      # event: Lines::SLOW's. now: seconds.
      def add(event, now)
        node = Node.new(event, take(event.span_id), false, now + WAIT)
        @vain.delete(event.span_id)
        caller = event.parent_id
        return @released.call(node) if caller.zero?
        return release_late(node) if @vain.key?(caller)

        (@waiting[caller] ||= []) << node
        @size += 1
        give_up(@waiting.first.first) while @size > MOST
      end

      def expire(now)
        give_up(@waiting.first.first) while @waiting.any? && @waiting.first.last.first.due <= now
      end

      # Nothing more will come.
      def finish
        give_up(@waiting.first.first) while @waiting.any?
      end

      private

      def take(caller)
        callees = @waiting.delete(caller) || []
        @size -= callees.size
        callees
      end

      def give_up(caller)
        @vain[caller] = true
        @vain.delete(@vain.first.first) if @vain.size > VAIN
        take(caller).each { |node| release_late(node) }
      end

      def release_late(node)
        node.late = true
        @late += 1
        @released.call(node)
      end
    end
  end
end
