# frozen_string_literal: true

require_relative "kernel"

module Probescope
  module Tracing
    # Converts bpftrace's `nsecs` to the time of day. bpftrace reads CLOCK_BOOTTIME on Linux 5.8 and
    # later, where BPF programs can read it, and CLOCK_MONOTONIC before. Only CLOCK_BOOTTIME goes on
    # while the machine is suspended. Make a Clock near the time that is to be converted, because
    # the time of day may be set.
    class Clock
      BOOTTIME_SINCE = [5, 8].freeze

      # The time of day, in ns, at which bpftrace's clock was 0.
      attr_reader :offset

      # The same for CLOCK_MONOTONIC, which traced processes use.
      def self.monotonic_offset = between(Process::CLOCK_MONOTONIC)

      # Between the readings of two clocks, the thread may lose its CPU, for tens of ms on a busy
      # machine. The closest of several readings is used.
      READINGS = 5

      # The time of day, in ns, at which the clock was 0.
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

      # For JSON: UTC, with microseconds. nil stays nil.
      def self.iso(time) = time&.strftime("%Y-%m-%dT%H:%M:%S.%6NZ")

      # For tables: the local time of day, "13:05:59.123".
      def self.of_day(time) = time ? time.getlocal.strftime("%H:%M:%S.%L") : "-"

      def initialize(release = Kernel.new.release)
        new = (release.scan(/\d+/).first(2).map(&:to_i) <=> BOOTTIME_SINCE) >= 0
        @offset = self.class.between(new ? Process::CLOCK_BOOTTIME : Process::CLOCK_MONOTONIC)
      end

      # The Time, in UTC.
      def time(nsecs) = self.class.at(nsecs, offset)
    end
  end
end
