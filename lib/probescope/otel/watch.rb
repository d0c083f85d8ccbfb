# frozen_string_literal: true

require "set"
require_relative "../host/descendants"
require_relative "../host/in_turns"
require_relative "../host/library"
require_relative "../host/named"
require_relative "../host/participant"
require_relative "../host/strangers"
require_relative "../host/survey"
require_relative "../host/target"

module Probescope
  module Otel
    # The processes that a bridge traces, as they start and end: those with a pid from the command
    # line, those with a name, and with `workers` all their descendants. Runs with privilege. A
    # process that cannot be traced is set aside for some time; the others are traced.
    class Watch
      # The most processes. Each is read every few seconds, and needs a lock.
      MOST = 500
      # Seconds for new processes in one search. bpftrace's output waits meanwhile.
      SECONDS = 0.5

      # order: Order. probes: the probes to trace. The block takes the reason why a process cannot
      # be traced.
      def initialize(order, probes, &refused)
        @refused = refused
        @order = order
        @probes = probes
        @wanted = Host::Library.arguments(probes)
        @users = Host::Library::TRUSTED_USERS unless order.trust || alone?
        @named = Host::Named.new(@order.comm)
        @strangers = Host::Strangers.new
        @found = {} # pid => Participant
        @owners = {} # pid => user, for the processes in @found
        @slow = {} # user => [seconds of the pause, when the pause ends]
      end

      # The Participants of the current processes.
      def look
        pids = wanted.to_set
        @strangers.keep(pids)
        @found.values.select(&:refused).each { |one| set_aside(one, one.refused) }
        @found.reject { |pid, one| pids.include?(pid) && one.alive? }.each_key { |pid| drop(pid) }
        add((pids - @found.keys).to_a)
        @found.values
      end

      # True when no later process can be traced.
      def closed? = !@order.comm && !@order.workers

      # True when only one process can be traced.
      def alone? = closed? && @order.pids.one?

      # True when the processes from the command line have ended, and no others can be traced.
      def over? = !@order.comm && @order.pids.none? { |pid| File.exist?("/proc/#{pid}") }

      # An open File of the process's library, checked for bpftrace. Raises Refused.
      def library(one) = one.target.library(@wanted, @users).last

      # Stops tracing a process, because of an Error.
      def set_aside(one, error)
        drop(one.pid)
        @strangers.look(one.pid) { raise error }
      rescue Host::Error => e
        @refused.call(e.in_one_line)
      end

      private

      def wanted
        roots = @order.pids.select { |pid| File.exist?("/proc/#{pid}") } | with_name
        return roots unless @order.workers

        roots | Host::Descendants.of(*roots)
      end

      def with_name
        return [] unless @order.comm

        @named.among(Host::Survey.pids)
      end

      def add(pids)
        limit = now + SECONDS
        Host::InTurns.of(pids.sort).each do |pid, owner|
          break if now > limit
          next if @slow.key?(owner) && now < @slow[owner].last
          next unless room_for?(owner)

          one = @strangers.look(pid) { participant(pid) }
          take(one, owner) if one
        rescue Host::Error => e
          kind = e.kind if e.is_a?(Host::Refused)
          pause(owner) if kind == :slow
          @refused.call(e.in_one_line) unless kind == :gone
        end
      end

      # When MOST is reached, a user has room who has at least two processes fewer than another
      # user. So no user displaces all processes of others.
      def room_for?(owner)
        return true if @found.size < MOST

        counts = @owners.values.tally
        return true if counts.values.max > counts.fetch(owner, 0) + 1

        @refused.call("more than #{MOST} processes: the others are left out")
        false
      end

      # When MOST is reached, replaces the last process of the user who has the most.
      def take(one, owner)
        if @found.size >= MOST
          greediest, = @owners.values.tally.max_by(&:last)
          drop(@found.keys.reverse.find { |pid| @owners[pid] == greediest })
        end
        @found[one.pid] = one
        @owners[one.pid] = owner
      end

      def drop(pid)
        @found.delete(pid)
        @owners.delete(pid)
      end

      # A process that is not read in time costs a second. So the user's other processes wait, too.
      def pause(owner)
        last = @slow[owner]&.first || Host::Strangers::FIRST_REFUSED
        pause = [last * 2, Host::Strangers::MOST_REFUSED].min
        @slow[owner] = [pause, now + pause]
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      def participant(pid)
        target = Host::Target.try(pid) or return
        one = Host::Participant.new(target, @probes)
        library(one).close
        one
      end
    end
  end
end
