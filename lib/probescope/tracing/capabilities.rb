# frozen_string_literal: true

require "rbconfig"

module Probescope
  module Tracing
    # The capabilities of this process. Ruby has no API for them.
    module Capabilities
      BITS = {cap_dac_override: 1, cap_dac_read_search: 2, cap_kill: 5, cap_setgid: 6, cap_setuid: 7,
              cap_sys_chroot: 18, cap_sys_ptrace: 19, cap_sys_admin: 21, cap_sys_resource: 24,
              cap_perfmon: 38, cap_bpf: 39, cap_checkpoint_restore: 40}.freeze
      # Root's capabilities that the helper and bpftrace need;
      # docs/how-to/run-the-bridge-as-a-service.md gives the reasons. With CAP_SYS_CHROOT, bpftrace
      # -p enters the mounts of a container.
      TRACING = %i[cap_sys_admin cap_sys_ptrace cap_dac_read_search cap_kill cap_sys_resource
                   cap_sys_chroot cap_perfmon cap_bpf cap_checkpoint_restore].freeze
      # The numbers of the system calls capset(2) and prctl(2).
      CALLS = {"x86_64" => [126, 157], "aarch64" => [91, 167]}.freeze
      VERSION = 0x20080522
      PR_CAPBSET_DROP = 24
      PR_SET_NO_NEW_PRIVS = 38
      LAST = 63
      # Number of the initial user namespace (PROC_USER_INIT_INO in the kernel). The kernel checks
      # for capabilities in that namespace.
      INITIAL = "user:[4026531837]"

      module_function

      def initial_namespace? = File.readlink("/proc/self/ns/user") == INITIAL

      def mask(names) = names.sum { |name| 1 << BITS.fetch(name) }

      # For a process of root and its children: permanently keeps only the capabilities of these
      # names.
      def limit(names)
        held = File.read("/proc/self/status")[/^CapPrm:\s+(\h+)/, 1].hex
        # In a container, root may have CAP_DAC_OVERRIDE without CAP_DAC_READ_SEARCH.
        names |= [:cap_dac_override] unless held.anybits?(mask([:cap_dac_read_search]))
        kept = held & mask(names)
        drop_bounds(kept)
        set(kept)
        no_new_privileges
      end

      # kept: a mask. The inheritable set is empty, but programs that root starts get what the
      # bounding set allows.
      def set(kept)
        low, high = kept & 0xffffffff, kept >> 32
        # Passed by address, because a String argument of syscall may contain no zero byte.
        header = [VERSION, 0].pack("L2")
        sets = [low, low, 0, high, high, 0].pack("L6")
        syscall(capset, *[header, sets].pack("p2").unpack("J2"))
      end

      def no_new_privileges = syscall(prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)

      # Root without CAP_SETPCAP, as in a container, already has a limited bounding set.
      def drop_bounds(kept)
        (0..LAST).each { |bit| syscall(prctl, PR_CAPBSET_DROP, bit, 0, 0, 0) unless kept.anybits?(1 << bit) }
      rescue Errno::EINVAL, Errno::EPERM # past the kernel's last capability, or no CAP_SETPCAP
        nil
      end

      def capset = CALLS.fetch(RbConfig::CONFIG["host_cpu"]).first
      def prctl = CALLS.fetch(RbConfig::CONFIG["host_cpu"]).last
    end
  end
end
