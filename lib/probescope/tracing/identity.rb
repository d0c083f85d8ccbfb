# frozen_string_literal: true

module Probescope
  module Tracing
    # Who a process is. The kernel takes no lock of the process to tell this. So, unlike Foreign,
    # this is not read in a child.
    module Identity
      module_function

      # Start time in ticks after boot; nil when the process has ended or is a zombie.
      def born(pid)
        fields = File.read("/proc/#{pid}/stat").rpartition(") ").last.split
        fields[19] unless %w[Z X].include?(fields[0])
      rescue SystemCallError
        nil
      end

      # The process's real user, nil when the process has ended. Read from `status`, because the
      # folder in /proc belongs to root where a process hides its memory.
      def owner(pid)
        File.read("/proc/#{pid}/status", 2048)[/^Uid:\s+(\d+)/, 1]&.to_i
      rescue SystemCallError
        nil
      end
    end
  end
end
