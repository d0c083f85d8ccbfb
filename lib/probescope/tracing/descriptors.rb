# frozen_string_literal: true

module Probescope
  module Tracing
    # The open file descriptors of this process.
    module Descriptors
      # stdin, stdout and stderr.
      LAST = 2

      module_function

      # Closes all descriptors but these IOs, the standard streams and the VM's own. Ruby has no IO
      # object for a descriptor that was open when the process began.
      def keep(ios)
        ObjectSpace.each_object(IO) do |io|
          io.close unless io.closed? || ios.include?(io) || io.fileno <= LAST
        end
        kept = ios.map(&:fileno)
        Dir.children("/proc/self/fd").map(&:to_i).each do |number|
          close(number) unless number <= LAST || kept.include?(number)
        end
      end

      # Ruby needs the mode in which the file was opened. For a descriptor of the VM, IO.for_fd
      # raises ArgumentError.
      def close(number)
        IO.for_fd(number, "r").close
      rescue Errno::EINVAL
        IO.for_fd(number, "w").close
      rescue ArgumentError, Errno::EBADF
        nil
      end
    end
  end
end
