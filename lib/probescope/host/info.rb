# frozen_string_literal: true

require_relative "bounds"
require_relative "info_layout"
require_relative "memory"
require_relative "refused"

module Probescope
  module Host
    # Reads `probescope_info` (providers/info.yml) out of a process. The library may be older or
    # newer than this command: sizes and offsets are those that its head announces, fields that it
    # does not have read as 0, those of APPENDED as nil.
    class Info
      # Fields that every library has.
      FIRST = {**InfoLayout::HEAD, **InfoLayout::PROCESS}.freeze
      STOPPED = "it may be stopped: look at its state with ps"

      # io: /proc/PID/mem, open. address: of the struct in the process.
      def initialize(io, address)
        @memory = Memory.new(io)
        @address = address
      end

      # A consistent copy: the head's fields by name, `flags` as names, and `probes`: {name =>
      # {state:, enabled:, semaphore:, reason:, out_ns:}}. Raises Refused when what is there is no
      # probescope_info, or is being written (:busy), and SystemCallError or EOFError when the
      # process is gone.
      def snapshot
        head = unpack(FIRST, @memory.read(@address, bytes(FIRST)))
        raise Refused.malformed("its probescope_info is not one") unless head[:magic] == InfoLayout::MAGIC
        # A size of 0: the library is mapped, and its first function is still to run.
        raise busy("begin") if head[:probe_size].zero?
        raise busy("finish") if head[:sequence].odd?

        unless believable?(head)
          raise Refused.malformed("its probescope_info tells of #{head[:probe_count]} probes " \
                                  "of #{head[:probe_size]} bytes")
        end

        rows = @memory.read(@address + head[:probes_offset], head[:probe_count] * head[:probe_size])
        appended = appended(head)
        raise busy("finish") if one(:sequence) != head[:sequence]

        head.slice(*InfoLayout::PROCESS.keys)
            .merge(appended, abi: head[:abi], flags: flags(head[:flags]), probes: probes(head, rows))
      end

      # Number of flushes so far: one figure, read often.
      def flushes = one(:flushes)

      # [looking_ns, looked_cpu_ns], read often; nil where the library does not have them.
      def looking
        fields = InfoLayout::APPENDED.slice(:looking_ns, :looked_cpu_ns)
        at = fields[:looking_ns].first
        return if one(:probes_offset) < at + bytes(fields)

        unpack(fields, @memory.read(@address + at, bytes(fields))).values
      end

      # The kernel's own count of tracers on a probe. semaphore: from a snapshot.
      def tracers(semaphore) = @memory.read(semaphore, 2).unpack1("S<")

      private

      def busy(what) = Refused.new(:busy, "the process does not #{what} writing its probescope_info", STOPPED)

      def believable?(head)
        head[:probe_count] <= Bounds::INFO_PROBES &&
          head[:probe_size].between?(Bounds::INFO_LEAST_ROW_BYTES, Bounds::INFO_ROW_BYTES)
      end

      # The table of probes begins where the head ends.
      def appended(head)
        there = InfoLayout::APPENDED.select { |_, (at, bytes)| at + bytes <= head[:probes_offset] }
        values = unpack(there, @memory.read(@address + bytes(FIRST), bytes(there)))
        InfoLayout::APPENDED.to_h { |name, _| [name, values[name]] }
      end

      # One of FIRST.
      def one(name)
        at, bytes, type = FIRST.fetch(name)
        @memory.read(@address + at, bytes).unpack1(type)
      end

      # {name => value}. Strings become valid UTF-8: the process is not believed.
      def unpack(fields, bytes)
        values = bytes.unpack(fields.each_value.map(&:last).join(" "))
        values.map! { |value| value.is_a?(String) ? value.dup.force_encoding(Encoding::UTF_8).scrub : value }
        fields.keys.zip(values).to_h
      end

      def bytes(fields) = fields.each_value.sum { |_, bytes, _| bytes }

      def flags(bits) = InfoLayout::FLAGS.select { |_, bit| bits.anybits?(bit) }.keys

      def probes(head, rows)
        size = bytes(InfoLayout::PROBE)
        Array.new(head[:probe_count]) do |i|
          row = rows.byteslice(i * head[:probe_size], [head[:probe_size], size].min).ljust(size, "\0")
          probe = unpack(InfoLayout::PROBE, row)
          [probe[:name], probe.merge(state: InfoLayout::STATES.fetch(probe[:state], "unknown"))]
        end.to_h
      end
    end
  end
end
