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
    # The processes that a bridge is about, as they come and go: those named by number, those with a
    # name, and with `workers` all that descend from them. Runs with privilege. One that cannot be
    # traced is set aside for some time, and the others are traced.
    class Watch
      # Each is looked at every few seconds, and holds a lock.
      MOST = 500
      # Seconds for new processes in one look: bpftrace's output waits meanwhile.
      SECONDS = 0.5

      # order: Order. probes: those that are to be traced. The block takes why a process cannot be.
      def initialize(order, probes, &refused)
        @refused = refused
        @order = order
        @probes = probes
        @wanted = Host::Library.arguments(probes)
        @users = Host::Library::TRUSTED_USERS unless order.trust || alone?
        @named = Host::Named.new(@order.comm)
        @strangers = Host::Strangers.new
        @found = {} # pid => Participant
        @owners = {} # of these: pid => user
        @slow = {} # by user: [seconds of the pause, when it is over]
      end

      # Of those that are there now: [Participant].
      def look
        pids = wanted.to_set
        @strangers.keep(pids)
        @found.values.select(&:refused).each { |one| set_aside(one, one.refused) }
        @found.reject { |pid, one| pids.include?(pid) && one.alive? }.each_key { |pid| drop(pid) }
        add((pids - @found.keys).to_a)
        @found.values
      end

      # True when only processes that are there already can be meant.
      def closed? = !@order.comm && !@order.workers

      # True when only one process can be meant.
      def alone? = closed? && @order.pids.one?

      # True when those that were named by number have ended, and no others are meant.
      def over? = !@order.comm && @order.pids.none? { |pid| File.exist?("/proc/#{pid}") }

      # An open File of the process's library, as bpftrace may read it. Raises Refused.
      def library(one) = one.target.library(@wanted, @users).last

      # That one is traced no more, because of an Error.
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

      # Where there are as many as can be, a user has room who has fewer than another one by two: no
      # user keeps those of others out.
      def room_for?(owner)
        return true if @found.size < MOST

        counts = @owners.values.tally
        return true if counts.values.max > counts.fetch(owner, 0) + 1

        @refused.call("more than #{MOST} processes: the others are left out")
        false
      end

      # In the place of the last one of the user who has the most, where there is no other place.
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

      # A second goes by for each process that is not read in time: others of its user wait, too.
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
