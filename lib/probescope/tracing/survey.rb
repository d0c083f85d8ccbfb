# frozen_string_literal: true

require_relative "identity"
require_relative "reader"
require_relative "refused"

module Probescope
  module Tracing
    # Asks one question about many processes. A user may start thousands of processes that are slow
    # to read, and must not hide the processes of other users. So the next process is always one of
    # the user on whom the least time was spent. Users with a process that was not read in time come
    # last. The survey ends after SECONDS, in which waits for a CPU do not count (Deadline).
    class Survey
      SECONDS = 3.5
      # Processes of one user that are read in a row.
      ROW = 16

      # found: {pid => answer}, without processes that have no answer. unreadable: how many
      # processes this user may not read. set_aside: {pid => reason} of the others.
      attr_reader :found, :unreadable, :set_aside

      # The pids of all processes.
      def self.pids = Dir.children("/proc").grep(/\A\d+\z/).map(&:to_i).sort

      # question: as in Reader.ask.
      def initialize(pids, question, seconds: SECONDS)
        @question = question
        @found = {}
        @unreadable = 0
        @set_aside = {}
        @slow = {}
        @writing = {} # pids that were busy once, and are asked a second time
        @queues = pids.group_by { |pid| Identity.owner(pid) }.except(nil)
        @spent = Hash.new(0.0)
        @limit = Reader.deadline(seconds)
        turn(next_owner) until @queues.empty? || @limit.passed?
        @queues.each_value do |rest|
          rest.each { |pid| @set_aside[pid] = "process #{pid}: there was no time to look at it" }
        end
      end

      private

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      def next_owner = @queues.keys.min_by { |owner| [@slow.key?(owner) ? 1 : 0, @spent[owner], owner] }

      def turn(owner)
        began = now
        row = @queues[owner].shift(ROW)
        answers = Reader.ask_each(@question, row, limit: @limit)
        @queues[owner].concat(row.drop(answers.size))
        row.zip(answers).first(answers.size).each do |pid, answer|
          answer.is_a?(Refused) ? refused(answer, pid, owner) : answered(pid, answer)
        end
        @spent[owner] += now - began
        @queues.delete(owner) if @queues[owner].empty?
      end

      def answered(pid, answer)
        @found[pid] = answer if answer
      end

      def refused(why, pid, owner)
        case why.kind
        when :gone then nil
        when :denied then @unreadable += 1
        when :busy then write_again(why, pid, owner)
        else
          @slow[owner] = true if why.kind == :slow
          @set_aside[pid] = why.message
        end
      end

      def write_again(why, pid, owner)
        return @set_aside[pid] = why.message if @writing.key?(pid)

        @writing[pid] = true
        @queues[owner] << pid
      end
    end
  end
end
