# frozen_string_literal: true

require_relative "display"

module Probescope
  module Tracing
    # Single slow calls, each below its nearest caller that is shown.
    class SlowCalls
      # row: a Hash with elapsed_ns and at. depth: how many of its callers are shown.
      Call = Struct.new(:id, :parent, :row, :depth)

      # The block returns whether a call's row is shown.
      def initialize(calls)
        @calls = calls.to_h { |call| [call.id, call] }
        @shown = @calls.select { |_, call| yield(call.row) }
      end

      # Leaves out the relays. Returns how many.
      def leave_out_relays
        made = by_caller
        within = made.flat_map { |around, callees| around ? callees : [] }
        relays = within.select { |call| relay?(call, made.fetch(call.id, [])) }
        relays.each { |call| @shown.delete(call.id) }.size
      end

      # Rows with their :depth, the longest call first, each before the calls that it made.
      def rows
        made = by_caller
        waiting = take(made, nil, 0)
        found = []
        # The process itself reports the ids, so callers may form a cycle. Calls in a cycle come
        # last.
        while waiting.any? || made.any?
          waiting = take(made, made.keys.first, 0) if waiting.empty?
          call = waiting.pop
          found << call.row.merge(depth: call.depth)
          waiting.concat(take(made, call.id, call.depth + 1))
        end
        found
      end

      private

      # The calls that this call made, the longest last.
      def take(made, id, depth)
        made.delete(id).to_a.each { |call| call.depth = depth }
            .sort_by { |call| call.row.values_at(:elapsed_ns, :at) }
      end

      # The shown calls, grouped by the id of the nearest shown caller; nil where there is none.
      def by_caller
        nearest = @shown.to_h { |id, _| [id, id] } # id of any call => id of the nearest shown call
        @shown.values.group_by do |call|
          passed = []
          around = @calls[call.parent]
          # The process itself reports the ids, so the loop must also end on a cycle.
          while around && !nearest.key?(around.id)
            nearest[around.id] = nil
            passed << around.id
            around = @calls[around.parent]
          end
          nearest[around&.id].tap { |id| passed.each { |one| nearest[one] = id } }
        end
      end

      # A relay is a call within another one that only made the next call.
      def relay?(call, callees)
        callees.one? && callees.first.row[:elapsed_ns] >= call.row[:elapsed_ns] * Display::PASSED_ON
      end
    end
  end
end
