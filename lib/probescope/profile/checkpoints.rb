# frozen_string_literal: true

require "timeout"

module Probescope
  module Profile
    # Writes a checkpoint of a long recording from time to time, in a child, so that the trace goes on
    # meanwhile. A command that is killed leaves the last one.
    class Checkpoints
      # Seconds between two checkpoints, and how many times the seconds that one takes at least.
      EVERY = 60
      REST = 20
      # Seconds to wait for another process.
      FORK_LIMIT = 2

      # The block makes the Recording. say: called with a text for the user.
      def initialize(destination, say:, every: EVERY, &recording)
        @destination = destination
        @least = @every = every
        @say = say
        @recording = recording
        @began = now
      end

      # Called often, once there is something to write. Begins a checkpoint when it is time.
      def step
        return if @stopped
        return collect if @child
        return if now - @began < @every

        @began = now
        start
      end

      # Ends a checkpoint that is under way. There are no more.
      def stop
        @stopped = true
        return unless @child

        Process.kill(:KILL, @child)
        ended(Process.wait2(@child).last)
        @destination.remove_unfinished_checkpoint
      end

      private

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      # There may be no room for another process: then Ruby tries again each second, for ever.
      def start
        @seconds, writer = IO.pipe
        @child = Timeout.timeout(FORK_LIMIT) { Process.fork { write(writer) } }
        @destination.begun_checkpoint = true
      rescue SystemCallError, ThreadError, Timeout::Error
        @seconds&.close
        failed
      ensure
        writer&.close
      end

      # In the child. Tells the parent how many seconds it has taken.
      def write(writer)
        %w[INT TERM HUP].each { |name| trap(name, "IGNORE") }
        began = now
        @destination.checkpoint(@recording.call)
        writer.syswrite((now - began).to_s)
        exit!(0)
      rescue StandardError
        exit!(1)
      end

      # The child may have ended long ago: nobody calls #step while the process is silent.
      def collect
        _, status = Process.wait2(@child, Process::WNOHANG)
        failed unless status.nil? || ended(status)
      end

      # Returns whether the checkpoint was written.
      def ended(status)
        seconds = Float(@seconds.read, exception: false)
        @seconds.close
        @child = nil
        return false unless status.success? && seconds

        @every = [@least, REST * seconds].max
        @destination.checkpoint_written
        true
      end

      def failed
        @say.call("the checkpoint #{@destination.part} could not be written; the recording goes on")
      end
    end
  end
end
