# frozen_string_literal: true

module Probescope
  module Otel
    # What waits to be sent, each process's in a queue of its own: all of them get their turn, and
    # when there is no room left, the process with most of it loses. Bundles (arrays) stay whole.
    # Safe to be used by several threads.
    class FairQueue
      # Items that found no room, so far.
      attr_reader :dropped

      # most: items. latest: of each process the last bundle alone waits. weigh: how many items a
      # bundle is.
      def initialize(most, latest: false, weigh: :size.to_proc)
        @most = most
        @latest = latest
        @weigh = weigh
        @bundles = {} # by process, in the order of their turns
        @sizes = Hash.new(0)
        @size = 0
        @dropped = 0
        @lock = Mutex.new
        @changed = ConditionVariable.new
      end

      attr_reader :most

      def size = @lock.synchronize { @size }
      def empty? = size.zero?
      def weigh(bundle) = @weigh.call(bundle)
      # Why items are dropped here.
      def reason = @latest ? "superseded" : "queue_full"

      def push(process, bundle)
        return if bundle.empty?

        @lock.synchronize do
          drop_oldest(process) if @latest && @bundles.key?(process)
          (@bundles[process] ||= []) << bundle
          count(process, weigh(bundle))
          drop_oldest(@sizes.max_by(&:last).first) while @size > @most
          @changed.signal
        end
      end

      # Bundles of together about `batch` items, one of each process in turn; waits up to `seconds`
      # for that many, and returns what there is by then. One that is larger comes alone.
      def take(batch, seconds)
        @lock.synchronize do
          wait(batch, seconds)
          taken = []
          count = 0
          while (process, bundles = @bundles.first)
            break if taken.any? && count + weigh(bundles.first) > batch

            taken << shift(process)
            count += weigh(taken.last)
          end
          taken
        end
      end

      # Number of items that waited.
      def clear
        @lock.synchronize do
          @bundles.clear
          @sizes.clear
          @size.tap { @size = 0 }
        end
      end

      # Nobody waits in #take any more.
      def close
        @lock.synchronize do
          @closed = true
          @changed.broadcast
        end
      end

      def closed? = @closed

      private

      def wait(batch, seconds)
        limit = now + seconds
        until @closed || @size >= batch
          left = limit - now
          break unless left.positive?

          @changed.wait(@lock, left)
        end
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      # The next one of a process, which then is the last in turn.
      def shift(process)
        bundles = @bundles.delete(process)
        bundle = bundles.shift
        @bundles[process] = bundles if bundles.any?
        count(process, -weigh(bundle))
        bundle
      end

      def drop_oldest(process)
        bundle = @bundles[process].shift
        @bundles.delete(process) if @bundles[process].empty?
        count(process, -weigh(bundle))
        @dropped += weigh(bundle)
      end

      def count(process, items)
        @size += items
        @sizes[process] += items
        @sizes.delete(process) if @sizes[process].zero?
      end
    end
  end
end
