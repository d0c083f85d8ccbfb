# frozen_string_literal: true

require "etc"
require_relative "error"

module Probescope
  module Tracing
    # The user who started this process through sudo.
    module Caller
      # Variables that sudo sets. They are removed for an application that no longer runs as root,
      # because they would be wrong there.
      OF_SUDO = %w[SUDO_USER SUDO_UID SUDO_GID SUDO_COMMAND SUDO_HOME MAIL].freeze

      module_function

      # Etc::Passwd of the user who ran sudo, when this process is root through sudo. nil when it is
      # not, and when root ran sudo. Raises Error when the system has no such user.
      def user
        uid = ENV.fetch("SUDO_UID", nil)
        return unless Process.euid.zero? && uid && uid != "0"

        known(uid)
      end

      # Makes this process that user permanently, with the user's groups and no capability. Returns
      # the changes that this needs in the environment.
      def become(user)
        Process.initgroups(user.name, user.gid)
        Process::GID.change_privilege(user.gid)
        Process::UID.change_privilege(user.uid)
        unset = OF_SUDO.to_h { |name| [name, nil] }
        {**unset, "HOME" => user.dir, "USER" => user.name, "LOGNAME" => user.name, "SHELL" => user.shell}
      rescue SystemCallError => e
        raise refused("#{user.name} (#{e.message})")
      end

      def known(uid)
        Etc.getpwuid(Integer(uid, 10))
      rescue ArgumentError, RangeError
        raise refused("user #{uid.inspect}, whom the system does not know")
      end

      def refused(whom)
        Error.new("sudo was called by #{whom}: the privileges cannot be given back",
                  "run it without sudo: `run` needs no privilege")
      end
    end
  end
end
