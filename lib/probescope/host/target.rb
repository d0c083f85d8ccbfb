# frozen_string_literal: true

require_relative "error"
require_relative "reader"
require_relative "survey"

module Probescope
  module Host
    # A process with the library in it. Runs in the helper, because other users' memory takes
    # privilege. What is asked of the process goes through Reader; so all of it raises Refused, and
    # nothing else.
    class Target
      # Seconds for a process that was asked for by its number to end what it is writing: a moment
      # on a busy machine, in which a process that was given a CPU once more has written.
      PATIENCE = 1.0

      class << self
        # Raises Refused, with the next step, when there is nothing to trace.
        def find(pid) = new(Reader.ask(:find, pid), patience: PATIENCE)

        # A Target, or nil where the library is not loaded. Raises Refused.
        def try(pid) = Reader.ask(:place, pid)&.then { |place| new(place) }

        # Those with the library among these processes, in the order in which they were found, and
        # the Survey.
        def all(pids = Survey.pids, **options)
          survey = Survey.new(pids, :place, **options)
          [survey.found.each_value.map { |place| new(place) }, survey]
        end

        # Of each of these: [Info#flushes, Info#looking], or a Refused.
        def counters(targets) = Reader.ask_each(:counters, targets.map(&:place))

        def how_to_load(pid) = Reader.ask(:how_to_load, pid)
      end

      attr_reader :place
      # What tells library files apart, see Library. nil before #library.
      attr_reader :identity

      def initialize(place, patience: 0)
        @place = place
        @patience = patience
      end

      def pid = @place.pid
      def file = @place.file

      # False as soon as the process has ended, also when its number has been given to another one.
      def alive? = Foreign.born(pid) == @place.born

      # Info#snapshot
      def snapshot = patiently { ask(:snapshot) }

      # Foreign.status
      def status = patiently { ask(:status) }

      # Whether somebody listens to each of these semaphores.
      def tracers(semaphores) = ask(:tracers, semaphores)

      def on_disk? = ask(:on_disk?)

      # Foreign.resource
      def resource(known) = ask(:resource, known)

      # Opens the library's file as one that bpftrace may read, see Library. Returns [what tells it
      # from other files, an open File].
      def library(wanted, users)
        *identity, file = ask(:library, wanted, users)
        @identity = identity
        [identity, file]
      end

      # See Names; empty when it is gone, or does not let its title be read.
      def name
        Reader.ask(:name, pid)
      rescue Refused
        ""
      end

      private

      def ask(question, *arguments) = Reader.ask(question, @place, *arguments)

      def patiently
        limit = Process.clock_gettime(Process::CLOCK_MONOTONIC) + @patience
        begin
          yield
        rescue Refused => e
          raise if e.kind != :busy || Process.clock_gettime(Process::CLOCK_MONOTONIC) > limit

          sleep 0.001
          retry
        end
      end
    end
  end
end
