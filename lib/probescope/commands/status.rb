# frozen_string_literal: true

require_relative "base"
require_relative "../tracing/client"
require_relative "../tracing/definitions"
require_relative "../tracing/privilege"

module Probescope
  module Commands
    # The probes of a process as the process reports them, and the application's own probes.
    class Status < Base
      USAGE = "status -p PID [options]"
      ABOUT = <<~TEXT
        Lists the probes of a process: first those that the application itself has defined
        (Probescope::Provider, Latency), then probescope's.

          LISTENED  whether a tracer listens to the probe right now; "?" where that is not known
          LIBRARY   the file by which a tracer reaches every process with the same probes:
                    usdt:LIBRARY:NAME. "none" where the library is in memory, where only -p finds it
                    (bpftrace before 0.25), or was deleted, where no tracer finds it
          STATE     unsupported and refused probes do not fire; degraded ones fire incompletely or at a
                    cost: see REASON
      TEXT
      EXAMPLES = <<~TEXT
        probescope status -p 4711
        probescope status -p 4711 --json | jq -r '.own[].name'
      TEXT

      private

      def options(parser)
        pid_option(parser)
        parser.on("--json", "one JSON object instead of the tables") { @json = true }
      end

      def call
        unless @pid
          raise CLI::Usage.new("which process?", "probescope status -p PID (probescope ps lists them)")
        end

        @json ? print_json(process) : print_tables(process)
        0
      end

      # Without privilege, reads what this user may read.
      def process
        @process ||= inspect_process(Tracing::Privilege.new.prefix)
      rescue Tracing::Error
        @process = inspect_process([])
      end

      def inspect_process(prefix) = Tracing::Client.open(prefix) { |client| client.inspect_process(@pid) }

      def print_json(process)
        puts Tracing::Text.answer(name, {pids: [@pid],
                                         process: process.slice(*Tracing::Definitions::PROCESS),
                                         rows: rows(process), own: process[:own], warnings: []})
      end

      def print_tables(process)
        require_relative "../tracing/list_renderer"
        own = process[:own]
        puts Tracing::ListRenderer.text(name, :own, own), "" if own.any?
        puts Tracing::ListRenderer.text(name, :rows, rows(process))
      end

      def rows(process)
        process[:probes].map do |name, probe|
          {name: name, state: probe[:state], listened: probe[:listened], reason: probe[:reason]}
        end
      end
    end
  end
end
