# frozen_string_literal: true

require "set"
require_relative "descendants"
require_relative "error"
require_relative "in_turns"
require_relative "named"
require_relative "order"
require_relative "probed_process"
require_relative "refused"
require_relative "strangers"
require_relative "survey"

module Probescope
  module Tracing
    # Finds the processes that an Order means: those with a pid from the command line, those with a
    # name, and with `workers` all their descendants. Runs with privilege. A command chooses once
    # (#processes), and then looks for new children. The bridge looks all the time for everything
    # that is meant (#meant), because it outlives the processes.
    class Selection
      # Seconds for new processes in one search. bpftrace's output waits meanwhile.
      SECONDS = 0.5

      # Notes for the user.
      attr_reader :notes

      # order: Order. The block takes each Error because of which a process is not traced; without a
      # block, refusals become notes.
      def initialize(order, most: Order::MOST, now: nil, &refused)
        @pids = order.pids.uniq
        @comm = order.comm
        @workers = order.workers
        @roots = []
        @most = most
        @notes = []
        @refused = refused || method(:note)
        @named = Named.new(@comm)
        @strangers = Strangers.new(&now)
        @slow = {} # user => [seconds of the pause, when the pause ends]
      end

      # True when exactly one process is traced, without later ones.
      def single? = @pids.one? && !@comm && !@workers

      # Array of ProbedProcess. Raises Error when a process from the command line cannot be traced,
      # or when there is none at all.
      def processes
        named = @comm ? with_name : []
        @roots = @pids | named.map(&:pid)
        found = asked_for + named
        look(children - found.map(&:pid), seconds: Survey::SECONDS) { |process| found << process }
        found.uniq!(&:pid)
        without_workers(found - named) if @workers && (found.map(&:pid) - @roots).empty?
        raise too_many(@pids) if @pids.size > @most

        found.size > @most ? some_of(found) : found
      end

      # The processes with a pid from the command line. Raises Error when one cannot be traced. A
      # server process need not have the library itself if its workers may have it.
      def asked_for
        @pids.filter_map do |pid|
          ProbedProcess.find(pid)
        rescue Refused => e
          raise unless @workers && e.kind == :not_loaded
        end
      end

      # The pids of all processes that are meant now.
      def meant
        @roots = @pids.select { |pid| there?(pid) }
        @roots |= @named.among(Survey.pids) if @comm
        @roots | children
      end

      # The pids of the processes' descendants, if they are traced too.
      def children = @workers ? Descendants.of(*@roots) : []

      # False when no process is left that could have children.
      def children_may_come? = @workers && @roots.any? { |pid| there?(pid) }

      # Yields a ProbedProcess for each of these that has the library, each user's first before any
      # user's second. A process is read again after a pause only (Strangers), if it has no library,
      # if the block returned false, or if the block raised Error.
      def look(pids, seconds: SECONDS)
        deadline = Reader.deadline(seconds)
        @strangers.keep(pids.to_set)
        InTurns.of(pids).each do |pid, owner|
          break if deadline.passed?
          next if @slow.key?(owner) && now < @slow[owner].last

          @strangers.look(pid) { (process = ProbedProcess.try(pid)) && yield(process) }
        rescue Error => e
          refuse(e, owner)
        end
      end

      # Does not read this process for some time, because of an Error.
      def set_aside(pid, error)
        @strangers.look(pid) { raise error }
      rescue Error
        nil
      end

      private

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      def there?(pid) = File.exist?("/proc/#{pid}")

      # A process that is not read in time costs a second. So the user's other processes wait, too.
      def refuse(error, owner)
        kind = error.kind if error.is_a?(Refused)
        if kind == :slow
          last = @slow[owner]&.first || Strangers::FIRST_REFUSED
          pause = [last * 2, Strangers::MOST_REFUSED].min
          @slow[owner] = [pause, now + pause]
        end
        @refused.call(error) unless kind == :gone
      end

      # A child that does not serve the probes, or has not initialised its library, needs no note.
      def note(error)
        text = error.in_one_line
        @notes << text if error.is_a?(Refused) && error.kind != :busy && !@notes.include?(text)
      end

      def with_name
        found, survey = ProbedProcess.all(@named.among(Survey.pids))
        @notes.concat(survey.set_aside.values)
        return found if found.any?

        names = ProbedProcess.all.first.map(&:name).tally.map { |name, count| "#{name} (#{count})" }
        there = names.empty? ? "no process has it" : "there are: #{names.sort.join(", ")}"
        raise Error.new("no process with probescope is named #{@comm.inspect}; #{there}", "probescope ps")
      end

      # The processes from the command line, then those of each user in turns, so that no user's
      # processes displace those of others.
      def some_of(found)
        @notes << "#{found.size} processes are too many for one command: #{found.size - @most} are left out"
        asked_for, others = found.partition { |process| @pids.include?(process.pid) }
        by_pid = others.to_h { |process| [process.pid, process] }
        (asked_for + InTurns.of(by_pid.keys).map { |pid, _| by_pid.fetch(pid) }).first(@most)
      end

      def without_workers(found)
        if found.empty? && @comm.nil?
          raise Error.new("#{list(@roots)} and #{@roots.one? ? "its" : "their"} children " \
                          "do not have probescope loaded",
                          ProbedProcess.how_to_load(@roots.first))
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
