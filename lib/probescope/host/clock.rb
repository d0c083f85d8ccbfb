# frozen_string_literal: true

require_relative "kernel"

module Probescope
  module Host
    # From bpftrace's `nsecs` to the time of day. bpftrace reads the clock that goes on while the
    # machine is suspended where the kernel lets programs read it, since 5.8, and the other one
    # before. To be made near the time that is to be told: the time of day may be set.
    class Clock
      BOOTTIME_SINCE = [5, 8].freeze

      # ns of the time of day when bpftrace's clock was 0.
      attr_reader :offset

      # The same of CLOCK_MONOTONIC, by which processes tell moments.
      def self.monotonic_offset = between(Process::CLOCK_MONOTONIC)

      # Who reads two clocks may lose the CPU in between, for tens of ms on a busy machine: the
      # closest of several readings counts.
      READINGS = 5

      # ns of the time of day when the clock was 0.
      def self.between(clock)
        readings = Array.new(READINGS) do
          before, day, after = [clock, Process::CLOCK_REALTIME, clock].map do |one|
            Process.clock_gettime(one, :nanosecond)
          end
          [after - before, day - ((before + after) / 2)]
        end
        readings.min.last
      end

      def self.at(nsecs, offset) = Time.at(0, offset + nsecs, :nanosecond, in: "UTC")

      # In JSON: UTC, to the microsecond. nil stays nil.
      def self.iso(time) = time&.strftime("%Y-%m-%dT%H:%M:%S.%6NZ")

      # For people: of this machine, "13:05:59.123".
      def self.of_day(time) = time ? time.getlocal.strftime("%H:%M:%S.%L") : "-"

      def initialize(release = Kernel.new.release)
        new = (release.scan(/\d+/).first(2).map(&:to_i) <=> BOOTTIME_SINCE) >= 0
        @offset = self.class.between(new ? Process::CLOCK_BOOTTIME : Process::CLOCK_MONOTONIC)
      end

      # Time, in UTC.
      def time(nsecs) = self.class.at(nsecs, offset)
    end
  end
end
