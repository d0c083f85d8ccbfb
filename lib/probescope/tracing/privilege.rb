# frozen_string_literal: true

require_relative "capabilities"
require_relative "error"
require_relative "path"

module Probescope
  module Tracing
    # Checks whether a program that this process starts may trace, and if not, how it can get the
    # privilege. Capabilities are checked, because root in a container often lacks them.
    class Privilege
      # CAP_SYS_ADMIN includes BPF and PERFMON; CAP_SYS_PTRACE opens /proc/PID/mem.
      NEEDED = %i[cap_sys_admin cap_sys_ptrace].freeze
      # The smaller set, for a bpftrace that also runs without root. CAP_KILL is needed to see
      # whether another user's process is alive.
      SMALL = %i[cap_bpf cap_perfmon cap_dac_read_search cap_dac_override cap_sys_ptrace
                 cap_checkpoint_restore cap_kill].freeze
      # What root needs in addition for a child that runs as nobody: to change its user, and to end
      # it.
      CHILD = %i[cap_setuid cap_setgid cap_kill].freeze

      # status: the text of /proc/self/status; a parameter for the specs.
      def initialize(status = File.read("/proc/self/status"))
        @uid = status[/^Uid:\s+\d+\s+(\d+)/, 1].to_i
        # Root keeps its effective capabilities over exec; other users keep the ambient ones.
        @kept = status[/^#{@uid.zero? ? "CapEff" : "CapAmb"}:\s+(\h+)/, 1].to_s.hex
      end

      def root? = @uid.zero?
      def missing(names) = names.reject { |name| @kept.anybits?(1 << Capabilities::BITS.fetch(name)) }

      # The command line to put before a program so that it may trace: [] when it already may.
      # bpftrace: nil when only the helper is run. Raises Error when there is no way to get the
      # privilege.
      def prefix(bpftrace = nil)
        raise namespaced unless Capabilities.initial_namespace?
        return [] if traces?(bpftrace)
        raise lacking(NEEDED) if root?

        sudo = Path.find("sudo")
        return [sudo, "-p", "[probescope] sudo password for %p: ", "--"] if sudo

        raise Error.new("tracing needs root, and there is no sudo", "run the command as root")
      end

      # For a program that itself traces and starts a child without privilege. command: its command
      # line, for the next step. Raises Error when it may not trace.
      def check(bpftrace, command)
        raise namespaced unless Capabilities.initial_namespace?
        raise unprivileged(bpftrace, command) unless root? || traces?(bpftrace)
        return unless root?

        needed = missing(%i[cap_dac_override]).any? ? %i[cap_dac_read_search] : []
        needed |= bpftrace.runs_without_root? ? SMALL : NEEDED unless traces?(bpftrace)
        raise lacking(needed | CHILD) if missing(needed | CHILD).any?
      end

      private

      def traces?(bpftrace)
        (root? && missing(NEEDED).empty?) ||
          (missing(SMALL).empty? && (bpftrace.nil? || bpftrace.runs_without_root?))
      end

      def namespaced
        Error.new("this is a user namespace (a rootless container, unshare -U): " \
                  "its root has no privilege to trace",
                  "run the command on the host, or in a container that is not rootless")
      end

      def lacking(needed)
        names = missing(needed).map { |name| name.to_s.upcase }
        added = names.map { |name| "--cap-add #{name.delete_prefix("CAP_")}" }.join(" ")
        Error.new("root lacks #{list(names)} here",
                  "in a container: start it with --pid=host #{added}, or run the command on the host")
      end

      def unprivileged(bpftrace, command)
        message = "tracing needs root"
        if bpftrace.runs_without_root?
          message += ", or ambient capabilities: #{list(missing(SMALL).map { |name| name.to_s.upcase })}"
        end
        Error.new(message,
                  Path.find("sudo") ? "sudo -E env \"PATH=$PATH\" #{command}" : "run it as root: #{command}")
      end

      def list(names)
        *rest, last = names
        rest.empty? ? last : "#{rest.join(", ")} and #{last}"
      end
    end
  end
end
