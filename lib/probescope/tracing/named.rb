# frozen_string_literal: true

require_relative "in_turns"
require_relative "names"
require_relative "reader"

module Probescope
  module Tracing
    # Finds the processes with a name, as `--comm` takes it (Names).
    class Named
      # SECONDS: the time for reading the titles of all processes. PAUSE: how long a process is
      # skipped whose title could not be read in time.
      SECONDS = 1.0
      PAUSE = 300.0
      # From this number of processes on, the order of reading matters, because not all titles may
      # be read in time.
      MANY = 1000

      def initialize(name)
        @name = name
        @slow = {} # by pid: the time after which its title is read again
      end

      def among(pids)
        @slow.select! { |_, again_at| again_at > now }
        named, others = pids.partition { |pid| Names.comm?(pid, @name) }
        others -= @slow.keys
        others = InTurns.of(others).map(&:first) if others.size > MANY
        titles = Reader.ask_each(:title, others, limit: Reader.deadline(SECONDS))
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
