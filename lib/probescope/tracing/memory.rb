# frozen_string_literal: true

require_relative "bounds"
require_relative "refused"

module Probescope
  module Tracing
    # The memory of a foreign process. Addresses and sizes come from the process itself, so they are
    # not trusted.
    class Memory
      # The end of the offsets that a file can have.
      LAST = 1 << 63

      # io: /proc/PID/mem, open.
      def initialize(io)
        @io = io
      end

      # Reads size bytes. Raises Refused where there is no such memory, EOFError when the process
      # has ended.
      def read(address, size)
        possible = size <= Bounds::READ_BYTES && address.between?(0, LAST - size)
        raise Refused.malformed("it tells of #{size} bytes at 0x#{address.to_s(16)}") unless possible

        data = size.zero? ? "".b : @io.pread(size, address)
        data.bytesize == size ? data : raise(EOFError, "the process has ended")
      rescue Errno::EIO, Errno::EFAULT
        raise Refused.malformed("it has no memory at 0x#{address.to_s(16)}")
      end
    end
  end
end
