# frozen_string_literal: true

module Probescope
  module Host
    # The result of one trace: rows by name, the interval, what was lost, and how the process stands.
    class Trace
      # bpftrace 0.24 and later print integers that a double cannot hold as strings.
      def self.number(value) = value.nil? ? nil : Integer(value)

      # output: an Output that has read one of providers/*.bt. ended: the helper's last answer.
      def initialize(output, ended)
        @maps = output.maps
        @lost_events = output.lost_events
        @ended = ended
      end

      # One row of the program: names, in the order of its map @row, and its figures in the other maps.
      Row = Struct.new(:names, :key, :maps) do
        # nil where the map has nothing for it.
        def number(map) = Trace.number(values(map))
        def values(map) = maps.fetch(map, {})[key]
      end

      def rows = @maps.fetch("row", {}).map { |key, names| Row.new(names, key, @maps) }

      # Seconds of wall time, and nanoseconds of CPU time of the process, that the rows cover.
      def seconds = (total("wall_ns") / 1e9).round(3)
      def cpu_ns = total("cpu_ns")

      # Events the kernel lost; rows the process had no memory for; rows without room in bpftrace's maps; samples that could
      # not be taken; details over the limit.
      def lost
        {events: @lost_events, rows: total("rows_dropped"), map_full: total("map_full"), samples: total("samples_missed"),
         details: total("details_suppressed")}
      end

      # :time, :stopped, :target_ended, :tracer_ended or :failed
      def reason = @ended.fetch(:reason).to_sym
      # Why it failed, or nil.
      def error = @ended[:error]
      # True when the process flushed while bpftrace was detaching.
      def torn? = @ended[:torn]
      # bpftrace's complaints.
      def stderr = @ended[:stderr].to_s
      # {name => {state:, reason:, ...}} as last seen.
      def probes = @ended.dig(:target, :probes) || {}
      # False when the process never got to the end of an interval.
      def any? = total("wall_ns").positive?

      private

      # One process is traced, so its maps have one entry; its key is the pid in whichever namespace bpftrace counts.
      def total(map) = @maps.fetch(map, {}).values.sum { |value| Trace.number(value) }
    end
  end
end
