# frozen_string_literal: true

require_relative "error"
require_relative "path"

module Probescope
  module Host
    # Whether what this process starts may trace, and if not, how to get there. What counts are capabilities: root in a
    # container often lacks them.
    class Privilege
      BITS = {cap_dac_override: 1, cap_dac_read_search: 2, cap_sys_ptrace: 19, cap_sys_admin: 21, cap_perfmon: 38,
              cap_bpf: 39, cap_checkpoint_restore: 40}.freeze
      # CAP_SYS_ADMIN includes BPF and PERFMON; CAP_SYS_PTRACE opens /proc/PID/mem.
      NEEDED = %i[cap_sys_admin cap_sys_ptrace].freeze
      # The smaller set, for a bpftrace that does not insist on root.
      SMALL = %i[cap_bpf cap_perfmon cap_dac_read_search cap_dac_override cap_sys_ptrace cap_checkpoint_restore].freeze

      # status: the text of /proc/self/status, so that a spec can show any.
      def initialize(status = File.read("/proc/self/status"))
        @uid = status[/^Uid:\s+\d+\s+(\d+)/, 1].to_i
        # Root keeps its capabilities over exec, others keep the ambient ones.
        @kept = status[/^#{@uid.zero? ? "CapEff" : "CapAmb"}:\s+(\h+)/, 1].to_s.hex
      end

      def root? = @uid.zero?
      def missing(names) = names.reject { |name| @kept.anybits?(1 << BITS.fetch(name)) }

      # The command line to put before a program so that it may trace: [] when it may already.
      # bpftrace: nil when only the helper is to run. Raises Error when there is no way.
      def prefix(bpftrace = nil)
        return [] if missing(NEEDED).empty? && root?
        return [] if missing(SMALL).empty? && (bpftrace.nil? || bpftrace.runs_without_root?)
        raise lacking if root?

        sudo = Path.find("sudo")
        return [sudo, "-p", "[probescope] sudo password for %p: ", "--"] if sudo

        raise Error.new("tracing needs root, and there is no sudo", "run the command as root")
      end

      private

      def lacking
        names = missing(NEEDED).map { |name| name.to_s.upcase }
        Error.new("root lacks #{names.join(" and ")} here",
                  "in a container: start it with --privileged --pid=host, or run the command on the host")
      end
    end
  end
end
