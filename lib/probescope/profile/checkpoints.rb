# frozen_string_literal: true

module Probescope
  module Profile
    # Writes a checkpoint of a long recording from time to time, in a child, so that the trace goes on
    # meanwhile. A command that is killed leaves the last one.
    class Checkpoints
      # Seconds between two checkpoints, and how many times the seconds that one takes at least.
      EVERY = 60
      REST = 20

      # The block makes the Recording. say: called with a text for the user.
      def initialize(destination, say:, every: EVERY, &recording)
        @destination = destination
        @every = every
        @say = say
        @recording = recording
        @began = now
      end

      # Called often. Begins a checkpoint when it is time.
      def step
        return collect if @child
        return if now - @began < @every

        @began = now
        @child = Process.fork { write }
      end

      # Ends a checkpoint that is under way.
      def stop
        return unless @child

        Process.kill(:KILL, @child)
        Process.wait(@child)
        @child = nil
        @destination.remove_unfinished
      end

      private

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      # In the child.
      def write
        %w[INT TERM HUP].each { |name| trap(name, "IGNORE") }
        @destination.checkpoint(@recording.call)
        exit!(0)
      rescue StandardError
        exit!(1)
      end

      def collect
        _, status = Process.wait2(@child, Process::WNOHANG)
        return unless status

        @child = nil
        @every = [@every, REST * (now - @began)].max
        return @destination.checkpoint_at = Time.now if status.success?

        @say.call("the checkpoint #{@destination.part} could not be written; the recording goes on")
      end
    end
  end
end
