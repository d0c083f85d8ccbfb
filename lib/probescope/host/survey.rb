# frozen_string_literal: true

require_relative "foreign"
require_relative "reader"
require_relative "refused"

module Probescope
  module Host
    # Puts one question about many processes. There may be thousands that cost as much as a process
    # can, so the user for whose processes least time went by comes next, those whose processes were
    # not read in time come last, and after so many seconds it is over: whoever starts many
    # processes keeps those of others from nobody.
    class Survey
      SECONDS = 3.5
      # Processes of one user in a row.
      ROW = 16

      # {pid => answer}, without those of no answer; how many processes this user may not look at;
      # {pid => why} of those that were set aside.
      attr_reader :found, :unreadable, :set_aside

      # Every process that there is.
      def self.pids = Dir.children("/proc").grep(/\A\d+\z/).map(&:to_i).sort

      # question: as Reader.ask takes it.
      def initialize(pids, question, seconds: SECONDS)
        @question = question
        @found = {}
        @unreadable = 0
        @set_aside = {}
        @slow = {}
        @writing = {} # those that were, and are asked once more
        @queues = pids.group_by { |pid| Foreign.owner(pid) }.except(nil)
        @spent = Hash.new(0.0)
        @limit = now + seconds
        turn(next_owner) until @queues.empty? || now > @limit
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
