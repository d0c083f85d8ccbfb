# frozen_string_literal: true

require "etc"

module Probescope
  module Tracing
    # Debian and Ubuntu give each user a group of the same name, and make files writable for that
    # group (umask 002).
    module PrivateGroup
      PASSWD = "/etc/passwd"

      @known = {}

      module_function

      # The gid of a user's group where nobody else is in it, or nil. Always nil for root, whose
      # files are not group-writable.
      def of(uid)
        return @known[uid] if @known.key?(uid)

        @known[uid] = find(uid)
      end

      # Whether other users may write to a file. stat: File::Stat. users: the users who may.
      def writable_by_others?(stat, users)
        return true if stat.mode.anybits?(0o002)

        stat.mode.anybits?(0o020) && users.none? { |uid| of(uid) == stat.gid }
      end

      def find(uid)
        return if uid.zero?

        user = Etc.getpwuid(uid)
        group = Etc.getgrgid(user.gid)
        user.gid if group.name == user.name && (group.mem - [user.name]).empty? && alone?(user)
      rescue ArgumentError # no such user or group
        nil
      end

      def alone?(user)
        users = File.foreach(PASSWD).map { |line| line.split(":") }
        users.none? { |name, _, _, gid| gid == user.gid.to_s && name != user.name }
      end
    end
  end
end
