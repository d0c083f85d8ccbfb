# frozen_string_literal: true

require "etc"
require_relative "error"

module Probescope
  module Host
    # Who started this process through sudo.
    module Caller
      # What sudo says of itself. An application that is no longer root is not to take them for
      # true.
      OF_SUDO = %w[SUDO_USER SUDO_UID SUDO_GID SUDO_COMMAND SUDO_HOME MAIL].freeze

      module_function

      # Etc::Passwd of who ran sudo, where this process is root by it; nil where it is not, and
      # where root ran it. Raises Error when the system does not know that user.
      def user
        uid = ENV.fetch("SUDO_UID", nil)
        return unless Process.euid.zero? && uid && uid != "0"

        known(uid)
      end

      # This process becomes that user for good, with the user's groups and no capability. Returns
      # the environment that goes with it.
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
