# frozen_string_literal: true

require_relative "bounds"
require_relative "info_layout"
require_relative "memory"
require_relative "refused"

module Probescope
  module Tracing
    # Reads `probescope_info` (providers/info.yml) of a process. The library may be older or newer
    # than this command, so sizes and offsets are taken from its head. Fields that the library does
    # not have are 0; those of APPENDED are nil.
    class Info
      # Fields that every version of the library has.
      FIRST = {**InfoLayout::HEAD, **InfoLayout::PROCESS}.freeze
      STOPPED = "it may be stopped: look at its state with ps"

      # io: /proc/PID/mem, open. address: of the struct in the process.
      def initialize(io, address)
        @memory = Memory.new(io)
        @address = address
      end

      # A consistent copy: the head's fields by name, `flags` as names, and `probes`: {name =>
      # {state:, enabled:, semaphore:, reason:, out_ns:}}. Raises Refused when the memory holds no
      # probescope_info, or while the process writes it (:busy), and SystemCallError or EOFError
      # when the process has ended.
      def snapshot
        head = unpack(FIRST, @memory.read(@address, bytes(FIRST)))
        raise Refused.malformed("its probescope_info is not one") unless head[:magic] == InfoLayout::MAGIC
        # A size of 0: the library is mapped, but its initialiser has not run yet.
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

      # Number of flushes so far. Reads this one field only, because it is read often.
      def flushes = one(:flushes)

      # [looking_ns, looked_cpu_ns], also read often; nil where the library does not have these
      # fields.
      def looking = few(:looking_ns, :looked_cpu_ns)

      # [ticked_ran_ns, ticked_met_ns, ticked_met], in the same way.
      def ticked = few(:ticked_ran_ns, :ticked_met_ns, :ticked_met)

      # The number of tracers on a probe, as the kernel counts them. semaphore: from a snapshot.
      def tracers(semaphore) = @memory.read(semaphore, 2).unpack1("S<")

      private

      def busy(what) = Refused.new(:busy, "the process does not #{what} writing its probescope_info", STOPPED)

      def believable?(head)
        head[:probe_count] <= Bounds::INFO_PROBES &&
          head[:probe_size].between?(Bounds::INFO_LEAST_ROW_BYTES, Bounds::INFO_ROW_BYTES)
      end

      # Reads the fields that the head has room for: the table of probes begins where the head ends.
      def appended(head)
        there = InfoLayout::APPENDED.select { |_, (at, bytes)| at + bytes <= head[:probes_offset] }
        values = unpack(there, @memory.read(@address + bytes(FIRST), bytes(there)))
        InfoLayout::APPENDED.to_h { |name, _| [name, values[name]] }
      end

      # Reads successive fields of APPENDED. nil where the head has no room for them.
      def few(*names)
        fields = InfoLayout::APPENDED.slice(*names)
        at = fields[names.first].first
        return if one(:probes_offset) < at + bytes(fields)

        unpack(fields, @memory.read(@address + at, bytes(fields))).values
      end

      # Reads one field of FIRST.
      def one(name)
        at, bytes, type = FIRST.fetch(name)
        @memory.read(@address + at, bytes).unpack1(type)
      end

      # {name => value}. Strings are made valid UTF-8, because the process is not trusted.
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
