# frozen_string_literal: true

module Probescope
  module Otel
    # Builds trees out of the slow calls of one process. A call's event is sent when the call ends,
    # so the events of its callees come first. They may also come slightly later, because bpftrace
    # reads one buffer for each CPU. Callees wait for their caller, and a whole tree is released at
    # once. A call that waits too long is released without its caller. With too many calls, the
    # oldest tree is released early. No call is ever dropped here. A process may be hostile: ids may
    # be anything, so calls may name themselves or each other as callers.
    class Assembly
      # Seconds that a call waits for its caller.
      WAIT = 10
      # The most calls that are kept, including those in a tree.
      MOST = 8192
      # Seconds that a complete tree is kept, for calls of it that are read later.
      GRACE = 1.0
      # The most callers to remember that did not come, such as a main loop. No call waits for them
      # again.
      VAIN = 256

      # A call and its callees.
      Node = Struct.new(:event, :callees, :due) do
        # Yields this node and each node below it, with the node of its caller. Callers come first.
        def each
          pending = [[self, nil]]
          while (node, caller = pending.pop)
            yield node, caller
            node.callees.reverse_each { |callee| pending << [callee, node] }
          end
        end
      end

      # How many calls had a caller that did not come in time.
      attr_reader :late
      # size: how many calls are kept now. most: the limit.
      attr_reader :size
      attr_accessor :most

      # The block takes each released tree.
      def initialize(&block)
        @released = block
        @most = MOST
        @waiting = {} # id of the caller => its nodes, the oldest first
        @size = 0
        @whole = [] # complete trees, the oldest first
        @nodes = {} # id => node, for all nodes in @whole
        @vain = {}
        @late = 0
      end

      # event: one of Lines::SLOW. now: seconds.
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

      # Releases everything, because no more events will come.
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

      # Gives up the caller whose callees have waited for longest.
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
