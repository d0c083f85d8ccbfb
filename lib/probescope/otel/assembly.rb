# frozen_string_literal: true

module Probescope
  module Otel
    # Puts the slow calls of one process together. A call's event comes when it ends, so those that
    # it made come first, or almost: bpftrace reads one buffer for each CPU. They wait for it, and a
    # whole tree of calls comes out at once. What waits too long, or is there with too many others,
    # comes out without its caller. Nothing is ever left out here. A process may be hostile: ids may
    # be anything, so that calls may name themselves or each other as callers.
    class Assembly
      # Seconds.
      WAIT = 10
      # Calls, those that their caller has included.
      MOST = 8192
      # A tree is kept for so many seconds, for those of its calls that are read after it.
      GRACE = 1.0
      # Callers that have been waited for in vain, such as a main loop: nothing waits for them
      # again.
      VAIN = 256

      # A call and those that it made.
      Node = Struct.new(:event, :callees, :due) do
        # Each node below this one and itself, callers first; yields it and the node of its caller.
        def each
          pending = [[self, nil]]
          while (node, caller = pending.pop)
            yield node, caller
            node.callees.reverse_each { |callee| pending << [callee, node] }
          end
        end
      end

      # Calls whose caller did not come in time.
      attr_reader :late
      # Calls that are kept now, and how many may be.
      attr_reader :size
      attr_accessor :most

      # The block takes each tree.
      def initialize(&block)
        @released = block
        @most = MOST
        @waiting = {} # by the id of the caller, the oldest first: nodes
        @size = 0
        @whole = [] # trees in their time of grace, the oldest first
        @nodes = {} # all nodes of those, by id
        @vain = {}
        @late = 0
      end

      # event: Lines::SLOW's. now: seconds.
      def add(event, now)
        node = Node.new(event, @waiting.delete(event.span_id) || [], now + WAIT)
        @size += 1
        @vain.delete(event.span_id)
        place(node, now)
        make_room(now) while @size > @most
      end

      def expire(now)
        give_up(now) while @waiting.any? && @waiting.first.last.first.due <= now
        let_go while @whole.any? && @whole.first.due <= now
      end

      # Nothing more will come.
      def finish
        give_up(0) while @waiting.any?
        let_go while @whole.any?
      end

      private

      def place(node, now)
        event = node.event
        return keep(node, now) if event.parent_id.zero? || event.parent_id == event.span_id
        return join(@nodes[event.parent_id], node) if @nodes.key?(event.parent_id)
        return keep_late(node, now) if @vain.key?(event.parent_id)

        (@waiting[event.parent_id] ||= []) << node
      end

      def make_room(now)
        give_up(now) if @whole.empty?
        let_go
      end

      def join(caller, node)
        caller.callees << node
        node.each { |one,| @nodes[one.event.span_id] = one }
      end

      def keep(node, now)
        node.due = now + GRACE
        @whole << node
        node.each { |one,| @nodes[one.event.span_id] = one }
      end

      # Those that have waited for longest.
      def give_up(now)
        caller = @waiting.first.first
        @vain[caller] = true
        @vain.delete(@vain.first.first) if @vain.size > VAIN
        @waiting.delete(caller).each { |node| keep_late(node, now) }
      end

      def keep_late(node, now)
        @late += 1
        keep(node, now)
      end

      def let_go
        tree = @whole.shift
        tree.each do |node,|
          @size -= 1
          @nodes.delete(node.event.span_id)
        end
        @released.call(tree)
      end
    end
  end
end
