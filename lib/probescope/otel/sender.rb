# frozen_string_literal: true

module Probescope
  module Otel
    # A thread that takes one signal's data out of its queue, and exports them. It retries while the
    # backend may still accept them.
    class Sender
      # Seconds between two tries. The pause doubles each time, and a random part of up to half is
      # subtracted.
      FIRST_PAUSE = 0.5
      LONGEST_PAUSE = 30
      # Errors that a server which speaks only gRPC causes, among other causes.
      GRPC = %w[Errno::ECONNRESET EOFError Net::HTTPBadResponse].freeze
      attr_reader :exported, :dropped, :failing

      # pause: seconds that data may wait for a full batch. timeout: seconds for one request. say:
      # takes a line for the log.
      def initialize(name, queue, exporter, batch:, pause:, timeout:, say: ->(_) {})
        @name = name
        @queue = queue
        @exporter = exporter
        @batch = batch
        @pause = pause
        @timeout = timeout
        @say = say
        @exported = 0
        @dropped = Hash.new(0)
        @lock = Mutex.new
        @wake = ConditionVariable.new
        @thread = Thread.new { run }
      end

      # Items that are not sent yet, including those in the current request.
      def waiting = @queue.size + @queue.weigh(@current || [])

      # Sends what is left, within so many seconds. The remainder is then counted as dropped.
      def finish(seconds)
        @deadline = now + seconds
        @queue.close
        @lock.synchronize { @wake.broadcast }
        @thread.join(seconds + 0.1) || @thread.kill.join
        left = @queue.clear + @queue.weigh(@current || [])
        @current = nil
        @dropped["shutdown"] += left if left.positive?
      end

      private

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      # The thread may be killed only where it sends or waits. Elsewhere, items that are taken but
      # not counted yet would be missing in every figure.
      def run
        Thread.handle_interrupt(Object => :never) do
          until @queue.closed? && @queue.empty?
            @current = @queue.take(@batch, @pause).flatten(1)
            send_current if @current.any?
            @current = nil
          end
        end
      end

      def stoppable(&block) = Thread.handle_interrupt(Object => :immediate, &block)

      def send_current
        tries = 0
        until deliver
          again = @exporter.again
          return refused(@exporter.reason || "refused") if again.nil?

          tries += 1
          failed(@exporter.reason)
          wait([again, backoff(tries)].max)
          return give_up("shutdown") if @deadline && now >= @deadline
        end
      end

      def deliver
        timeout = @deadline ? [@deadline - now, 0.1].max : @timeout
        return false unless stoppable { @exporter.deliver(@current, timeout: [timeout, @timeout].min) }

        @exported += @queue.weigh(@current) - @exporter.rejected
        rejected if @exporter.rejected.positive?
        @say.call("#{@name}: the backend takes them again") if @failing
        @failing = nil
        true
      end

      def failed(reason)
        if @failing.nil?
          @say.call("#{@name}: the backend does not take them (#{reason || "no reason"}); " \
                    "they wait#{hint(reason)}")
        end
        @failing = reason || "no reason"
      end

      def hint(reason)
        if @exported.zero? && GRPC.include?(reason)
          "; is that an endpoint of OTLP/HTTP (port 4318), not of gRPC (4317)?"
        end
      end

      def give_up(reason)
        @dropped[reason] += @queue.weigh(@current)
      end

      def refused(reason)
        unless @dropped.key?(reason)
          @say.call("#{@name}: the backend refuses them for good (#{reason}); they are dropped")
        end
        give_up(reason)
      end

      def rejected
        unless @dropped.key?("rejected")
          @say.call("#{@name}: the backend rejects some of them: #{@exporter.rejection}")
        end
        @dropped["rejected"] += @exporter.rejected
      end

      def backoff(tries) = [FIRST_PAUSE * (2**(tries - 1)), LONGEST_PAUSE].min * (0.5 + (rand / 2))

      def wait(seconds)
        limit = now + seconds
        limit = [limit, @deadline].min if @deadline
        @lock.synchronize do
          # #finish wakes the thread, which then does not wait longer.
          stoppable { @wake.wait(@lock, limit - now) } while now < limit && !(@deadline && limit > @deadline)
        end
      end
    end
  end
end
