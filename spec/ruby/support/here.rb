# frozen_string_literal: true

module Tracing
  # Reads the innermost open call of a thread as a tracer's program does: from the address of the
  # thread's record and the offsets that function__here told, in /proc/PID/mem.
  class Here
    FIELDS = %i[record layout epoch thread_id gil gil_bytes].freeze

    def initialize(pid)
      @memory = File.open("/proc/#{pid}/mem", "rb")
    end

    # The address of the stack that a record names, or 0.
    def stack(record) = word(record)

    # The name of the innermost open call, or nil.
    def function(record)
      stack, layout, epoch, where, native, _, names = words(record, 7)
      return if stack.zero?

      frames, depth, own_epoch, size, row, _, site, shared = [layout].pack("Q<").unpack("C8")
      return if shared.positive? && word(where) != native

      open = half(stack + depth)
      return if half(stack + own_epoch) != half(epoch) || open.zero?

      frame = word(stack + frames) + ((open - 1) * size)
      text(word(word(word(frame + row) + site) + (names & 255)))
    end

    private

    def words(address, count) = @memory.pread(8 * count, address).unpack("Q<*")
    def word(address) = words(address, 1).first
    def half(address) = @memory.pread(4, address).unpack1("L<")
    def text(address) = @memory.pread(256, address).unpack1("Z*")
  end
end
