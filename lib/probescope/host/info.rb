# frozen_string_literal: true

require_relative "memory"
require_relative "refused"

module Probescope
  module Host
    # Reads `probescope_info` (ext/core/info.h) out of a process. The library may be older or newer than this command:
    # sizes and offsets are those that its head announces, fields that it does not have read as 0, those of HEAD_APPENDED as nil.
    class Info
      MAGIC = "PSCOPE1"
      HEAD = "Z8 L<6 Z16 Z32 Z16 l< L< Q<6 Z128"
      HEAD_NAMES = %i[magic size abi sequence probe_count probe_size probes_offset runtime version library pid flags
                      memory_limit memory_used rows_dropped flushes switches watcher_ticks note].freeze
      HEAD_BYTES = 280
      # What later versions appended: ns of CLOCK_MONOTONIC when semaphores last changed, and when every hook for that was in (0: not yet);
      # CPU ns that looking took in the intervals that were flushed, and CPU ns of the process in them; PROBESCOPE_MAX_OVERHEAD in
      # millionths, 0 where there is no limit; CLOCK_MONOTONIC where the last interval that was flushed ended, which stats__done tells too.
      HEAD_APPENDED = %i[asked_ns hooks_in_ns looking_ns looked_cpu_ns overhead_limit cut].freeze
      # out_ns: CLOCK_MONOTONIC when its hooks were taken out for that limit, or 0.
      PROBE = "Z24 L< L< Q< Z120 Q<"
      PROBE_NAMES = %i[name state enabled semaphore reason out_ns].freeze
      PROBE_BYTES = 168
      FLUSHES_AT = 128
      PROBES_OFFSET_AT = 28
      # Where looked_cpu_ns ends.
      LOOKING_END = HEAD_BYTES + 8 * 4
      SEQUENCE_AT = 16
      STATES = %w[off on degraded refused unsupported].freeze
      FLAGS = {installed: 1, watcher: 2, jit: 4, cycle_clock: 8, requests: 16}.freeze
      # There are 26 probes of 168 bytes.
      MOST_PROBES = 128
      MOST_PROBE_BYTES = 1024
      STOPPED = "it may be stopped: look at its state with ps"

      # io: /proc/PID/mem, open. address: of the struct in the process.
      def initialize(io, address)
        @memory = Memory.new(io)
        @address = address
      end

      # A consistent copy: the head's fields by name, `flags` as names, and `probes`: {name => {state:, enabled:, semaphore:,
      # reason:, out_ns:}}. Raises Refused when what is there is no probescope_info, or is being written (:busy), and SystemCallError or
      # EOFError when the process is gone.
      def snapshot
        head = HEAD_NAMES.zip(unpack(@memory.read(@address, HEAD_BYTES), HEAD)).to_h
        raise Refused.malformed("its probescope_info is not one") unless head[:magic] == MAGIC
        # A size of 0: the library is mapped, and its first function is still to run.
        raise busy("begin") if head[:probe_size].zero?
        raise busy("finish") if head[:sequence].odd?
        unless head[:probe_size].between?(40, MOST_PROBE_BYTES) && head[:probe_count] <= MOST_PROBES
          raise Refused.malformed("its probescope_info tells of #{head[:probe_count]} probes of #{head[:probe_size]} bytes")
        end

        rows = @memory.read(@address + head[:probes_offset], head[:probe_count] * head[:probe_size])
        appended = appended(head)
        raise busy("finish") if @memory.read(@address + SEQUENCE_AT, 4).unpack1("L<") != head[:sequence]

        head.slice(*HEAD_NAMES.drop(7)).merge(appended, abi: head[:abi], flags: flags(head[:flags]), probes: probes(head, rows))
      end

      # Number of flushes so far: one figure, read often.
      def flushes = @memory.read(@address + FLUSHES_AT, 8).unpack1("Q<")

      # [looking_ns, looked_cpu_ns], read often; nil where the library does not have them.
      def looking
        return if @memory.read(@address + PROBES_OFFSET_AT, 4).unpack1("L<") < LOOKING_END

        @memory.read(@address + LOOKING_END - 16, 16).unpack("Q<2")
      end

      # The kernel's own count of tracers on a probe. semaphore: from a snapshot.
      def tracers(semaphore) = @memory.read(semaphore, 2).unpack1("S<")

      private

      def busy(what) = Refused.new(:busy, "the process does not #{what} writing its probescope_info", STOPPED)

      # The table of probes begins where the head ends.
      def appended(head)
        count = ((head[:probes_offset] - HEAD_BYTES) / 8).clamp(0, HEAD_APPENDED.size)
        HEAD_APPENDED.zip(@memory.read(@address + HEAD_BYTES, count * 8).unpack("Q<*")).to_h
      end

      # Strings become valid UTF-8: the process is not believed.
      def unpack(bytes, format)
        bytes.unpack(format).map { |value| value.is_a?(String) ? value.dup.force_encoding(Encoding::UTF_8).scrub : value }
      end

      def flags(bits) = FLAGS.select { |_, bit| bits.anybits?(bit) }.keys

      def probes(head, rows)
        Array.new(head[:probe_count]) do |i|
          row = rows.byteslice(i * head[:probe_size], [head[:probe_size], PROBE_BYTES].min).ljust(PROBE_BYTES, "\0")
          probe = PROBE_NAMES.zip(unpack(row, PROBE)).to_h
          [probe[:name], probe.merge(state: STATES.fetch(probe[:state], "unknown"))]
        end.to_h
      end
    end
  end
end
