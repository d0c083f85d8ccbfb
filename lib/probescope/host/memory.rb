# frozen_string_literal: true

require_relative "bounds"
require_relative "refused"

module Probescope
  module Host
    # The memory of a foreign process. Addresses and sizes are those that the process tells, so
    # nothing about them is believed.
    class Memory
      # An offset of a file ends here.
      LAST = 1 << 63

      # io: /proc/PID/mem, open.
      def initialize(io)
        @io = io
      end

      # So many bytes. Raises Refused where there are none, EOFError when the process is gone.
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
