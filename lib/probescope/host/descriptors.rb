# frozen_string_literal: true

module Probescope
  module Host
    # The open files of this process.
    module Descriptors
      # stdin, stdout and stderr.
      LAST = 2

      module_function

      # Closes all but these IOs, the standard ones and those of the VM itself. Ruby has no object
      # for what was open when the process began.
      def keep(ios)
        ObjectSpace.each_object(IO) do |io|
          io.close unless io.closed? || ios.include?(io) || io.fileno <= LAST
        end
        kept = ios.map(&:fileno)
        Dir.children("/proc/self/fd").map(&:to_i).each do |number|
          close(number) unless number <= LAST || kept.include?(number)
        end
      end

      # Ruby wants to know how the file was opened. It gives no IO for a file of the VM's
      # (ArgumentError).
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
