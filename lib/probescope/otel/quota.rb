# frozen_string_literal: true

require_relative "../tracing/identity"

module Probescope
  module Otel
    # Which processes a bridge traces when there are more than it can. When it is full, a user still
    # has room who has at least two processes fewer than another user. So no user displaces all
    # processes of others.
    class Quota
      # The most processes. Each is read every few seconds, and needs a lock.
      MOST = 500

      def initialize
        @owners = {} # pid => user
      end

      def for?(pid)
        return true if @owners.size < MOST

        counts = @owners.values.tally
        counts.values.max > counts.fetch(Tracing::Identity.owner(pid), 0) + 1
      end

      # Returns the pid of the process that has to go, or nil: the last process of the user who has
      # the most.
      def take(pid)
        if @owners.size >= MOST
          greediest, = @owners.values.tally.max_by(&:last)
          displaced = @owners.keys.reverse.find { |one| @owners[one] == greediest }
        end
        @owners[pid] = Tracing::Identity.owner(pid)
        displaced
      end

      def leave(pid) = @owners.delete(pid)
    end
  end
end
