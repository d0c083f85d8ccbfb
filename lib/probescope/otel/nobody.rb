# frozen_string_literal: true

require "etc"
require_relative "../tracing/capabilities"
require_relative "../tracing/descriptors"

module Probescope
  module Otel
    # Drops every privilege of this process permanently. A root process becomes nobody. A process
    # that was not root, but had capabilities, keeps its user. Neither keeps a capability.
    # Capabilities are dropped explicitly: a change of the user leaves the inheritable ones, and a
    # process that was never root does not change its user.
    module Nobody
      module_function

      # keep: IOs that stay open beside stdout and stderr. Other descriptors may refer to files that
      # only the privileged user may read. user: Etc::Passwd, for root.
      def become(keep, user = Etc.getpwnam("nobody"))
        Tracing::Descriptors.keep(keep)
        $stdin.reopen(File::NULL)
        leave_terminal
        change_user(user) if Process.euid.zero?
        Tracing::Capabilities.set(0)
        Tracing::Capabilities.no_new_privileges
      end

      # A process can push input into its controlling terminal (TIOCSTI), where root's shell would
      # read it.
      def leave_terminal
        Process.setsid
      rescue Errno::EPERM # it leads a process group that its parent made for it
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
