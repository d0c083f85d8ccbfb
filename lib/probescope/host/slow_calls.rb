# frozen_string_literal: true

module Probescope
  module Host
    # Single calls, each below the nearest one around it that is shown.
    class SlowCalls
      # A call within another one only made the next one when a single call that it made took this
      # share of its time.
      PASSED_ON = 0.95

      # row: hash with elapsed_ns and at. depth: how many of its callers are shown.
      Call = Struct.new(:id, :parent, :row, :depth)

      # The block wants calls by their row.
      def initialize(calls)
        @calls = calls.to_h { |call| [call.id, call] }
        @shown = @calls.select { |_, call| yield(call.row) }
      end

      # Leaves out calls within others that only made the next one. Returns how many.
      def leave_out_relays
        made = by_caller
        within = made.flat_map { |around, callees| around ? callees : [] }
        relays = within.select { |call| relay?(call, made.fetch(call.id, [])) }
        relays.each { |call| @shown.delete(call.id) }.size
      end

      # Rows with their :depth, the longest call first, and behind each those that it made.
      def rows
        made = by_caller
        waiting = take(made, nil, 0)
        found = []
        # Ids are what the process says: calls in a circle, below none of these, come at last.
        while waiting.any? || made.any?
          waiting = take(made, made.keys.first, 0) if waiting.empty?
          call = waiting.pop
          found << call.row.merge(depth: call.depth)
          waiting.concat(take(made, call.id, call.depth + 1))
        end
        found
      end

      private

      # Those that this one made, the longest last.
      def take(made, id, depth)
        made.delete(id).to_a.each { |call| call.depth = depth }
            .sort_by { |call| call.row.values_at(:elapsed_ns, :at) }
      end

      # The calls that are shown, by the id of the nearest one of them around each, nil where there
      # is none.
      def by_caller
        nearest = @shown.to_h { |id, _| [id, id] } # by the id of any call
        @shown.values.group_by do |call|
          passed = []
          around = @calls[call.parent]
          # Ids are what the process says: a circle must end as well.
          while around && !nearest.key?(around.id)
            nearest[around.id] = nil
            passed << around.id
            around = @calls[around.parent]
          end
          nearest[around&.id].tap { |id| passed.each { |one| nearest[one] = id } }
        end
      end

      def relay?(call, callees)
        callees.one? && callees.first.row[:elapsed_ns] >= call.row[:elapsed_ns] * PASSED_ON
      end
    end
  end
end
