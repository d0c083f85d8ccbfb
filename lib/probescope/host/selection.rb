# frozen_string_literal: true

require_relative "descendants"
require_relative "error"
require_relative "in_turns"
require_relative "named"
require_relative "refused"
require_relative "strangers"
require_relative "survey"
require_relative "target"

module Probescope
  module Host
    # The processes that a command traces: those with a pid from the command line, those with a
    # name, and with `workers` all their descendants, also later ones. Runs in the helper.
    class Selection
      # The most processes of one command. Each is read every 20 ms.
      MOST = 500

      # Notes for the user.
      attr_reader :notes

      # order: Order.
      def initialize(order, most: MOST, now: nil)
        @pids = order.pids.uniq
        @comm = order.comm
        @workers = order.workers
        @most = most
        @notes = []
        @strangers = Strangers.new(&now)
      end

      # True when exactly one process is traced, without later ones.
      def single? = @pids.one? && !@comm && !@workers

      # Array of Target. Raises Error when a process from the command line cannot be traced, or when
      # there is none at all.
      def targets
        named = @comm ? with_name : []
        @roots = @pids | named.map(&:pid)
        found = @workers ? @pids.filter_map { |pid| root(pid) } : @pids.map { |pid| Target.find(pid) }
        found += named
        known = found.map(&:pid)
        found += newcomers(known)
        found.uniq!(&:pid)
        without_workers(found - named) if @workers && (found.map(&:pid) - @roots).empty?
        raise too_many(@pids) if @pids.size > @most

        found.size > @most ? some_of(found) : found
      end

      # Targets among the descendants of the selected processes. known: pids to leave out.
      def newcomers(known)
        return [] unless @workers

        children = Descendants.of(*@roots) - known
        @strangers.keep(children)
        children.filter_map do |pid|
          @strangers.look(pid) { Target.try(pid) }
        rescue Refused => e
          @notes << e.in_one_line unless e.kind == :gone || @notes.include?(e.in_one_line)
          nil
        end
      end

      # False when no process is left that could have children.
      def roots? = @workers && @roots.any? { |pid| File.exist?("/proc/#{pid}") }

      private

      def with_name
        found, survey = Target.all(Named.new(@comm).among(Survey.pids))
        @notes.concat(survey.set_aside.values)
        return found if found.any?

        names = Target.all.first.map(&:name).tally.map { |name, count| "#{name} (#{count})" }
        there = names.empty? ? "no process has it" : "there are: #{names.sort.join(", ")}"
        raise Error.new("no process with probescope is named #{@comm.inspect}; #{there}", "probescope ps")
      end

      # The processes from the command line, then those of each user in turns, so that no user's
      # processes displace those of others.
      def some_of(found)
        @notes << "#{found.size} processes are too many for one command: #{found.size - @most} are left out"
        asked_for, others = found.partition { |target| @pids.include?(target.pid) }
        by_pid = others.to_h { |target| [target.pid, target] }
        (asked_for + InTurns.of(by_pid.keys).map { |pid, _| by_pid.fetch(pid) }).first(@most)
      end

      # A server process need not have the library itself. Its workers have it.
      def root(pid)
        Target.find(pid)
      rescue Refused => e
        raise if e.kind != :not_loaded
      end

      def without_workers(found)
        if found.empty? && @comm.nil?
          raise Error.new("#{list(@roots)} and #{@roots.one? ? "its" : "their"} children " \
                          "do not have probescope loaded",
                          Target.how_to_load(@roots.first))
        end

        @notes << "#{list(@roots)} #{@roots.one? ? "has" : "have"} no children with probescope yet; " \
                  "those to come are traced too"
      end

      def list(pids) = "process#{"es" unless pids.one?} #{pids.join(", ")}"

      def too_many(pids)
        Error.new("#{pids.size} processes are too many for one command: #{@most} at most",
                  "trace some of them: -p PID -p PID")
      end
    end
  end
end
