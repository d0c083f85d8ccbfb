# frozen_string_literal: true

require_relative "identity"

module Probescope
  module Tracing
    # Orders processes so that each user's first process comes before any user's second one, however
    # many processes a user has.
    module InTurns
      module_function

      # [[pid, user], ...]: the first process of each user, then the second of each, and so on.
      # Processes that have ended are left out.
      def of(pids)
        owned = pids.filter_map { |pid| Identity.owner(pid)&.then { |owner| [pid, owner] } }
        turns = Hash.new(0)
        owned.sort_by.with_index { |(_, owner), i| [turns[owner] += 1, i] }
      end
    end
  end
end
