# frozen_string_literal: true

require_relative "../host/descendants"
require_relative "../host/names"
require_relative "../host/participant"
require_relative "../host/target"

module Probescope
  module Otel
    # The processes that a bridge is about, as they come and go: those named by number, those with a name, and with `workers` all
    # that descend from them. Runs with privilege.
    class Watch
      # order: {pids:, comm:, workers:}; probes: those that are to be traced. The block takes why a process cannot be.
      def initialize(order, probes, &refused)
        @refused = refused
        @order = order
        @probes = probes
        @found = {} # pid => Participant, or nil for one that has nothing to tell
        @born = {}
      end

      # Of those that are there now: [Participant].
      def look
        pids = wanted
        @found.select! { |pid, _| pids.include?(pid) && same?(pid) }
        (pids - @found.keys).each { |pid| @found[pid] = participant(pid) }
        @found.values.compact
      end

      # True when only processes that are there already can be meant.
      def closed? = !@order[:comm] && !@order[:workers]

      # True when those that were named by number have ended, and no others are meant.
      def over? = !@order[:comm] && @order[:pids].none? { |pid| File.exist?("/proc/#{pid}") }

      private

      def wanted
        roots = @order[:pids].select { |pid| File.exist?("/proc/#{pid}") } | with_name
        return roots unless @order[:workers]

        roots | roots.flat_map { |pid| Host::Descendants.of(pid) }
      end

      def with_name
        return [] unless @order[:comm]

        Dir.children("/proc").grep(/\A\d+\z/).map(&:to_i).select { |pid| Host::Names.match?(pid, @order[:comm]) }
      end

      # A process that has nothing to tell may have loaded the library since.
      def same?(pid) = @found[pid] ? @found[pid].target.alive? : false

      def participant(pid)
        target = Host::Target.try(pid) or return
        Host::Participant.new(target, @probes)
      rescue Host::Error => e
        @refused.call([e.message, e.next_step].compact.join("; try: "))
        nil
      end
    end
  end
end
