# frozen_string_literal: true

require_relative "in_turns"
require_relative "names"
require_relative "reader"

module Probescope
  module Host
    # Which processes have a name, as `--comm` takes it (Names).
    class Named
      # Seconds for the titles of all processes, and until one that could not be read in time is
      # read again.
      SECONDS = 1.0
      PAUSE = 300.0
      # Titles of more take so long that it matters whose come first.
      MANY = 1000

      def initialize(name)
        @name = name
        @slow = {} # by pid: when it is read again
      end

      def among(pids)
        @slow.select! { |_, again_at| again_at > now }
        named, others = pids.partition { |pid| Names.comm?(pid, @name) }
        others -= @slow.keys
        others = InTurns.of(others).map(&:first) if others.size > MANY
        titles = Reader.ask_each(:title, others, limit: now + SECONDS)
        named + others.zip(titles).filter_map { |pid, title| pid if match?(pid, title) }
      end

      private

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      def match?(pid, title)
        @slow[pid] = now + PAUSE if title.is_a?(Refused) && title.kind == :slow
        title == @name.b
      end
    end
  end
end
