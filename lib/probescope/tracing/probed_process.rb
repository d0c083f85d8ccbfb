# frozen_string_literal: true

require_relative "identity"
require_relative "reader"
require_relative "survey"

module Probescope
  module Tracing
    # A process with the library. Runs in the helper, because reading other users' memory needs
    # privilege. Every read goes through Reader, so the methods raise Refused and nothing else.
    class ProbedProcess
      # Seconds that a process from the command line has to finish writing. Even on a busy machine,
      # a process finishes its write the next time that it gets a CPU.
      PATIENCE = 1.0

      class << self
        # Raises Refused, with the next step, when there is nothing to trace.
        def find(pid) = new(Reader.ask(:find, pid), patience: PATIENCE)

        # A ProbedProcess, or nil where the library is not loaded. Raises Refused.
        def try(pid) = Reader.ask(:place, pid)&.then { |place| new(place) }

        # Returns [ProbedProcesses among these processes, in the order of reading, the Survey].
        def all(pids = Survey.pids, **options)
          survey = Survey.new(pids, :place, **options)
          [survey.found.each_value.map { |place| new(place) }, survey]
        end

        # Returns [Info#flushes, Info#looking, Info#ticked], or a Refused, for each of these
        # processes.
        def counters(processes) = Reader.ask_each(:counters, processes.map(&:place))

        def how_to_load(pid) = Reader.ask(:how_to_load, pid)
      end

      attr_reader :place
      # The identity of the library file, see Library. nil before #library.
      attr_reader :identity

      def initialize(place, patience: 0)
        @place = place
        @patience = patience
      end

      def pid = @place.pid
      def file = @place.file

      # False as soon as the process has ended, also when another process has got its number.
      def alive? = Identity.born(pid) == @place.born

      # Info#snapshot
      def snapshot = patiently { ask(:snapshot) }

      # Foreign.status
      def status = patiently { ask(:status) }

      # The number of tracers on each of these semaphores.
      def tracers(semaphores) = ask(:tracers, semaphores)

      def on_disk? = ask(:on_disk?)

      # Foreign.resource
      def resource(known) = ask(:resource, known)

      # Opens the library's file after the checks of Library. Returns [its identity, an open File].
      def library(wanted, users)
        *identity, file = ask(:library, wanted, users)
        @identity = identity
        [identity, file]
      end

      # CFunction.find
      def function(name, symbol, users) = ask(:function, name.b, symbol, users)

      # See Names. Empty when the process has ended, or when its title cannot be read.
      def name
        Reader.ask(:name, pid)
      rescue Refused
        ""
      end

      # EntryPoint.globs. Empty when the process has ended, or its command line cannot be read.
      def entry_point
        Reader.ask(:entry_point, pid)
      rescue Refused
        []
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
