# frozen_string_literal: true

module Probescope
  module Otel
    # Data that wait to be sent, with a queue for each process. Processes take turns, and when the
    # room is exhausted, the process with most data loses its oldest. Bundles (arrays) stay whole.
    # Thread-safe.
    class FairQueue
      # How many items were dropped for lack of room.
      attr_reader :dropped

      # most: the limit of items. latest: whether only the last bundle of each process is kept.
      # weigh: returns how many items a bundle has.
      def initialize(most, latest: false, weigh: :size.to_proc)
        @most = most
        @latest = latest
        @weigh = weigh
        @bundles = {} # process => bundles, in the order of turns
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
      # The reason for which items are dropped here.
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

      # Takes bundles of about `batch` items in total, one of each process in turn. Waits up to
      # `seconds` until there are that many, then returns what it has. A bundle that is larger than
      # `batch` comes alone.
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

      # Empties the queue. Returns how many items waited.
      def clear
        @lock.synchronize do
          @bundles.clear
          @sizes.clear
          @size.tap { @size = 0 }
        end
      end

      # Wakes every thread that waits in #take; #take no longer waits.
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

      # Takes the next bundle of a process, and moves the process to the end of the turns.
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
