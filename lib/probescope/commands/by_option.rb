# frozen_string_literal: true

require_relative "own_option"
require_relative "../tracing/own_report"

module Probescope
  module Commands
    # The options --by and --own of a command whose figures belong to call paths. A command that
    # includes this defines OWN_PROGRAM, a class OwnReport (a Tracing::OwnReport), and BY, the values of
    # --by.
    module ByOption
      include OwnOption

      # bpftrace 0.17 takes no more.
      PATH_BYTES = 200

      private

      def by_options(parser)
        values = self.class::BY
        parser.on("--by WHAT", values,
                  "own (the default, where the application is told from its libraries): what libraries " \
                  "cost counts for the line of the application that called them; self: for " \
                  "themselves#{"; total: the same, sorted by TOTAL" if values.include?("total")}") do |by|
          @by = by == "total" ? "self" : by
          @sort ||= sort("TOTAL") if by == "total"
        end
        own_option(parser)
      end

      # Rows of requests are by route, and not by call path.
      def by_own? = !@by_request && (@by || "own") == "own"

      def prepare
        super
        if own_globs.any? && !by_own?
          raise CLI::Usage.new("--own is for --by own", "#{name} -p PID --own 'app/*'")
        end
        return unless @by == "own" && @by_request

        raise CLI::Usage.new("--by-request has no rows by call path", "#{name} -p PID --by-request")
      end

      # An older library has no call paths.
      def trace_processes
        super
      rescue Tracing::Error => e
        older = e.message.include?("does not have the probe stack__")
        raise unless older && by_own? && @by.nil? && own_globs.empty?

        @by = "self"
        super.tap { say("by self: #{e.message}") }
      end

      def program = by_own? ? self.class::OWN_PROGRAM : super
      def strings = by_own? ? PATH_BYTES : super

      # One choice of the application's files is for all processes.
      def report_of(part)
        by_own? ? self.class::OwnReport.new(part, definition, @own) : super
      end

      def check(result)
        super
        return unless by_own?

        paths = Tracing::CallPaths.new(result)
        entry = result.members.flat_map { |one| one[:entry].to_a }.uniq
        @own = Tracing::Own.choose(own_globs, paths.to_a, entry)
        @own.unmatched.each { |glob| say(unmatched(glob, paths.nodes.map(&:frame))) }
      end
    end
  end
end
