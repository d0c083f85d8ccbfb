# frozen_string_literal: true

module Probescope
  module Tracing
    # Counts the seconds in a line on stderr, if stderr is a terminal. Prints nothing where io is
    # nil.
    class Progress
      # Yields a Progress, and clears the line afterwards.
      def self.show(seconds, io = $stderr)
        progress = new(seconds, io)
        yield progress
      ensure
        progress&.done
      end

      def initialize(seconds, io)
        @seconds = seconds
        @io = io&.tty? ? io : nil
        say("attaching ...")
      end

      # Called when the interval has begun.
      def count
        return unless @io

        began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        @ticker = Thread.new do
          loop do
            passed = Process.clock_gettime(Process::CLOCK_MONOTONIC) - began
            say(format("%d of %g s, Ctrl-C ends early", [passed, @seconds].min, @seconds))
            sleep 0.5
          end
        end
      end

      def done
        @ticker&.kill&.join
        write("\r\e[K")
      end

      private

      def say(text) = write("\r\e[Kprobescope: #{text}")

      # The terminal may be gone: that ends the trace, and must not end the command before it has shown or
      # written what it has.
      def write(text)
        @io&.write(text)
      rescue SystemCallError
        @io = nil
      end
    end
  end
end
