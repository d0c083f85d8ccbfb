# frozen_string_literal: true

require "etc"
require_relative "../host/capabilities"
require_relative "../host/descriptors"

module Probescope
  module Otel
    # Gives up every privilege of this process, for good: it becomes nobody, or where it was not
    # root and had capabilities keeps its user, and has no capability left. With another user's id a
    # process keeps what is inheritable, and one that was never root keeps everything, so
    # capabilities are given up by themselves.
    module Nobody
      module_function

      # keep: IOs that stay open beside stdout and stderr; others lead to what only the privileged
      # may read. user: Etc::Passwd, for root.
      def become(keep, user = Etc.getpwnam("nobody"))
        Host::Descriptors.keep(keep)
        $stdin.reopen(File::NULL)
        leave_terminal
        change_user(user) if Process.euid.zero?
        Host::Capabilities.set(0)
        Host::Capabilities.no_new_privileges
      end

      # A process may type into its controlling terminal (TIOCSTI), where root's shell reads it.
      def leave_terminal
        Process.setsid
      rescue Errno::EPERM # it leads a group, which its parent has made for it
        nil
      end

      def change_user(user)
        Process.groups = []
        Process::GID.change_privilege(user.gid)
        Process::UID.change_privilege(user.uid)
      end
    end
  end
end
