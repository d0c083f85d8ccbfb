# frozen_string_literal: true

require "etc"
require "rbconfig"

module Probescope
  module Otel
    # Gives up every privilege of this process, for good: it becomes nobody, or where it was not root and had capabilities keeps
    # its user, and has no capability left.
    module Nobody
      # Linux's numbers of capset(2) and prctl(2): with another user's id a process keeps what is inheritable, and one that was
      # never root keeps everything.
      CALLS = {"x86_64" => [126, 157], "aarch64" => [91, 167]}.freeze
      CAPABILITY_VERSION = 0x20080522
      PR_SET_NO_NEW_PRIVS = 38

      module_function

      # keep: IOs that stay open; others lead to what only the privileged may read.
      def become(keep)
        ObjectSpace.each_object(IO) { |io| io.close unless io.closed? || keep.include?(io) }
        change_user if Process.euid.zero?
        capset, prctl = CALLS.fetch(RbConfig::CONFIG["host_cpu"])
        # By address: as strings they may hold no zero.
        header = [CAPABILITY_VERSION, 0].pack("L2")
        none = [0, 0, 0, 0, 0, 0].pack("L6")
        syscall(capset, *[header, none].pack("p2").unpack("J2"))
        syscall(prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
      end

      def change_user
        nobody = Etc.getpwnam("nobody")
        Process.groups = []
        Process::GID.change_privilege(nobody.gid)
        Process::UID.change_privilege(nobody.uid)
      end
    end
  end
end
