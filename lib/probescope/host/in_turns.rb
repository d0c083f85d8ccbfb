# frozen_string_literal: true

require_relative "foreign"

module Probescope
  module Host
    # An order of processes in which no user's come before another's first one, however many there
    # are.
    module InTurns
      module_function

      # [[pid, user], ...]: the first process of each user, the second of each, ...; without those
      # that are gone.
      def of(pids)
        owned = pids.filter_map { |pid| Foreign.owner(pid)&.then { |owner| [pid, owner] } }
        turns = Hash.new(0)
        owned.sort_by.with_index { |(_, owner), i| [turns[owner] += 1, i] }
      end
    end
  end
end
