# frozen_string_literal: true

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
      MAX_BYTES = 1 << 20

      # A moment on a busy machine, in which a process that was given a CPU once more has written.
      TRIES = 1000

      # The message: what the process has still to do.
      Torn = Class.new(StandardError)

      # memory: /proc/PID/mem, open. address: of the struct in the process.
      def initialize(memory, address)
        @memory = memory
        @address = address
      end

      # A consistent copy: the head's fields by name, `flags` as names, and `probes`: {name => {state:, enabled:, semaphore:,
      # reason:, out_ns:}}. Raises Error when what is there is no probescope_info, SystemCallError or EOFError when the process is gone.
      def snapshot
        left = nil
        TRIES.times do
          return attempt
        rescue Torn => e
          left = e.message
          sleep 0.001
        end
        raise Error.new("the process does not #{left} writing its probescope_info", "it may be stopped: look at its state with ps")
      end

      # Number of flushes so far: one figure, read often.
      def flushes = @memory.pread(8, @address + FLUSHES_AT).unpack1("Q<")

      # [looking_ns, looked_cpu_ns], read often; nil where the library does not have them.
      def looking
        @looking_at ||= @memory.pread(4, @address + PROBES_OFFSET_AT).unpack1("L<") >= LOOKING_END ? LOOKING_END - 16 : :missing
        @memory.pread(16, @address + @looking_at).unpack("Q<2") unless @looking_at == :missing
      end

      # The kernel's own count of tracers on a probe. semaphore: from a snapshot.
      def tracers(semaphore) = @memory.pread(2, semaphore).unpack1("S<")

      # Whatever is asked for afterwards raises IOError.
      def close = @memory.close

      private

      def attempt
        head = HEAD_NAMES.zip(unpack(@memory.pread(HEAD_BYTES, @address), HEAD)).to_h
        raise Error, "its probescope_info is not one" unless head[:magic] == MAGIC
        # A size of 0: the library is mapped, and its first function is still to run.
        raise Torn, "begin" if head[:probe_size].zero?
        raise Torn, "finish" if head[:sequence].odd?

        table = head[:probe_count] * head[:probe_size]
        raise Error, "its probescope_info has no sense" if table > MAX_BYTES || head[:probe_size] < 40

        rows = table.zero? ? "" : @memory.pread(table, @address + head[:probes_offset])
        appended = appended(head)
        raise Torn, "finish" if @memory.pread(4, @address + SEQUENCE_AT).unpack1("L<") != head[:sequence]

        head.slice(*HEAD_NAMES.drop(7)).merge(appended, abi: head[:abi], flags: flags(head[:flags]), probes: probes(head, rows))
      end

      # The table of probes begins where the head ends.
      def appended(head)
        count = ((head[:probes_offset] - HEAD_BYTES) / 8).clamp(0, HEAD_APPENDED.size)
        HEAD_APPENDED.zip(@memory.pread(count * 8, @address + HEAD_BYTES).unpack("Q<*")).to_h
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
