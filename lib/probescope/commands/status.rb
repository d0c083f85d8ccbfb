# frozen_string_literal: true

require_relative "base"
require_relative "../host/client"
require_relative "../host/privilege"

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
      OWN = ["OF ITS OWN", "ARGUMENTS", "LISTENED", "LIBRARY"].freeze
      LISTENED = {true => "yes", false => "no", nil => "?"}.freeze
      # Fields of the process in JSON; docs/schema/status.json describes them.
      PROCESS = %i[pid runtime version library abi path deleted flags memory_limit memory_used rows_dropped
                   flushes switches watcher_ticks note].freeze
      HEADINGS = %w[PROBE STATE LISTENED REASON].freeze

      private

      def options(parser)
        pid_option(parser)
        parser.on("--json", "one JSON object instead of the tables") { @json = true }
      end

      def call
        unless @pid
          raise CLI::Usage.new("which process?", "probescope status -p PID (probescope ps lists them)")
        end

        @json ? print_json(target) : print_tables(target)
        0
      end

      # Without privilege, reads what this user may read.
      def target
        @target ||= inspect_process(Host::Privilege.new.prefix)
      rescue Host::Error
        @target = inspect_process([])
      end

      def inspect_process(prefix) = Host::Client.open(prefix) { |client| client.inspect_process(@pid) }

      def print_json(target)
        rows = target[:probes].map do |name, probe|
          {name: name, state: probe[:state], listened: probe[:listened], reason: probe[:reason]}
        end
        puts Host::Text.answer(name, {pids: [@pid], process: target.slice(*PROCESS), rows: rows,
                                      own: target[:own], warnings: []})
      end

      def print_tables(target)
        require_relative "../host/table"
        own = target[:own].map do |probe|
          [probe[:name], probe[:arguments].to_s, LISTENED[probe[:listened]], probe[:path] || "none"]
        end
        puts Host::Table.render(OWN, own, right: ["ARGUMENTS"]), "" if own.any?
        probes = target[:probes].map do |name, probe|
          [name.to_s, probe[:state], LISTENED[probe[:listened]], probe[:reason]]
        end
        puts Host::Table.render(HEADINGS, probes)
      end
    end
  end
end
