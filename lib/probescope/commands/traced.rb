# frozen_string_literal: true

require_relative "base"
require_relative "../host/bpftrace"
require_relative "../host/client"
require_relative "../host/figure"
require_relative "../host/kernel"
require_relative "../host/output"
require_relative "../host/path"
require_relative "../host/privilege"
require_relative "../host/program"
require_relative "../host/progress"
require_relative "../host/trace"

module Probescope
  module Commands
    # A command that traces one process for some seconds and shows a table. A subclass has PROGRAM (in providers/),
    # HEADINGS, MIN (what --min is a share of), NOTHING (said when there are no rows), perhaps WIDENED, and
    #   rows(trace)   hashes with the keys of its JSON rows, the most important one first; :share is taken out again and is
    #                 what --min compares
    #   cells(row)    the strings of its table
    class Traced < Base
      # Rows that bpftrace has room for; a row is about 1 KiB of kernel memory.
      KEYS = 16_384
      # What --all does, and whether that takes all.bt.
      ALL = "no effect here: every file takes part anyway"
      WIDENED = false

      def initialize
        super
        @seconds = 10.0
        @top = 20
        @min = 0.0
      end

      private

      def options(parser)
        pid_option(parser)
        parser.on("-d", "--duration SECONDS", Float,
                  "how long, 10 by default; it ends with the process's next flush") do |seconds|
          raise CLI::Usage.new("-d takes a positive number of seconds", "-d 10") unless seconds.positive? && seconds.finite?

          @seconds = seconds
        end
        parser.on("--all", self.class::ALL) { @all = true }
        parser.on("--top N", Integer, "the first N rows, 20 by default; 0 for all") do |top|
          raise CLI::Usage.new("--top takes 0 or more", "--top 20") if top.negative?

          @top = top
        end
        parser.on("--min PERCENT", Float, "hide rows below this share of #{self.class::MIN}") { |min| @min = min }
        parser.on("--json", "one JSON object instead of the table") { @json = true }
      end

      def call
        raise CLI::Usage.new("which process? -p PID is missing", "probescope ps") unless @pid

        trace = trace_process
        check(trace)
        found = rows(trace)
        shown = found.select { |row| (row.delete(:share) || 0) * 100 >= @min }
        shown = shown.first(@top) if @top.positive?
        @json ? print_json(trace, shown) : print_table(trace, shown, found.size)
        0
      end

      def trace_process
        Host::Kernel.new.check
        bpftrace = Host::Bpftrace.find
        output = Host::Output.new
        ended = nil
        Host::Client.open(Host::Privilege.new.prefix(bpftrace)) do |client|
          target = client.inspect_process(@pid)
          attachable(target)
          supported(target)
          Host::Progress.show(@seconds) do |progress|
            ending_early(client) do
              client.trace(order(bpftrace)) do |answer|
                case answer[:is]
                when "output" then output << answer[:line]
                when "counting" then progress.count
                when "ended" then ended = answer
                end
              end
            end
          end
        end
        Host::Trace.new(output, ended)
      end

      # By process id bpftrace finds the library through its path, and where another file is there now, nothing or the wrong
      # thing.
      def attachable(target)
        return unless target[:deleted]

        raise Host::Error.new("the library of process #{@pid} was replaced or deleted on disk (#{target[:path]})",
                              "restart the process")
      end

      # What this Ruby can never serve need not be waited for.
      def supported(target)
        Host::Program.probes(Host::Program.path(self.class::PROGRAM)).each do |name|
          probe = target[:probes][name.to_sym]
          refuse(name, probe) if probe && probe[:state] == "unsupported"
        end
      end

      def refuse(name, probe)
        raise Host::Error.new("the process does not serve #{name}: #{probe[:reason]}", "probescope doctor -p #{@pid}")
      end

      def order(bpftrace)
        programs = [self.class::PROGRAM, *("all.bt" if @all && self.class::WIDENED)].map { |file| Host::Program.path(file) }
        {pid: @pid, programs: programs, seconds: @seconds, bpftrace: bpftrace.path, setpriv: Host::Path.find("setpriv"),
         keys: keys}
      end

      def keys
        number = Integer(ENV.fetch("PROBESCOPE_MAP_KEYS", KEYS), exception: false)
        if number&.positive?
          number
        else
          raise(CLI::Usage.new("PROBESCOPE_MAP_KEYS is no number of rows",
                               "unset PROBESCOPE_MAP_KEYS"))
        end
      end

      # Ctrl-C, TERM and a closed terminal end the trace, and what there is is shown.
      def ending_early(client)
        before = %w[INT TERM HUP].to_h { |name| [name, trap(name) { client.stop }] }
        yield
      ensure
        before&.each { |name, handler| trap(name, handler) }
      end

      # Raises Host::Error when there is nothing to show for a reason; warns of what makes the figures less than whole.
      def check(trace)
        doctor = "probescope doctor -p #{@pid}"
        raise Host::Error.new(trace.error, doctor) if trace.error
        raise Host::Error.new("bpftrace failed: #{complaint(trace)}", doctor) if trace.reason == :tracer_ended

        served(trace).each do |name, probe|
          refuse(name, probe) if probe[:state] != "degraded"

          say("the process serves #{name} in part: #{probe[:reason]}")
        end
        say("process #{@pid} ended while it was traced; this is what it told until then") if trace.reason == :target_ended
        say("the process flushed while bpftrace was leaving: some figures may cover a second more than others") if trace.torn?
        say("the process finished no interval in that time: nothing is known") unless trace.any?
        trace.lost.each { |what, number| say(format(LOST.fetch(what), number)) if number.positive? }
      end

      LOST = {
        events: "%d events were lost between the kernel and bpftrace",
        rows: "%d events had no row of their own: the process's memory for names is full (see (overflow))",
        map_full: "%d rows were dropped: bpftrace's maps are full; give them room: PROBESCOPE_MAP_KEYS=#{KEYS * 4}",
        samples: "%d samples could not be taken",
        details: "%d exception details were over the limit of 10 a second"
      }.freeze

      # The probes of this command that are not simply on.
      def served(trace)
        Host::Program.probes(Host::Program.path(self.class::PROGRAM))
                     .filter_map { |name| [name, trace.probes[name.to_sym]] if trace.probes[name.to_sym] }
                     .select { |_, probe| %w[degraded refused unsupported].include?(probe[:state]) }
      end

      def complaint(trace)
        lines = trace.stderr.lines.map(&:strip).reject { |line| line.empty? || line.match?(/RLIMIT_MEMLOCK|\AWARNING/) }
        lines.grep(/error/i).first || lines.last || "it ended by itself"
      end

      def say(text) = warn("probescope: #{Host::Text.clean(text)}")

      def print_json(trace, rows)
        puts Host::Text.json({command: name, pids: [@pid], seconds: trace.seconds, rows: rows, lost: trace.lost})
      end

      def print_table(trace, rows, found)
        puts "#{name} of process #{@pid}, #{format("%.1f", trace.seconds)} s, " \
             "#{Host::Figure.share(trace.seconds.positive? ? trace.cpu_ns / trace.seconds / 1e9 : nil)} CPU"
        return puts("  #{none(trace, found)}") if rows.empty?

        require_relative "../host/table"
        puts "", Host::Table.render(self.class::HEADINGS, rows.map { |row| cells(row) })
        puts "", "#{found - rows.size} more rows; --top 0 shows all" if found > rows.size
        more = below(rows)
        puts "", more if more
      end

      def none(trace, found)
        return "nothing was collected" unless trace.any?

        found.zero? ? self.class::NOTHING : "every row is below --min"
      end

      # Text under the table, or nil.
      def below(_rows) = nil

      # For the rows: what the process does not know is nil.
      def known(value) = ["", 0].include?(value) ? nil : value

      def where(row) = row[:file] ? [row[:file], row[:line]].compact.join(":") : "-"

      def sum(rows, key) = rows.sum { |row| row[key] || 0 }

      def ratio(part, whole) = whole.positive? && part ? (part.to_f / whole).round(6) : nil

      # Largest first, ties by place, so that two runs show the same order.
      def sorted(rows, *keys)
        rows.sort_by { |row| [*keys.map { |key| -(row[key] || 0) }, row.values_at(:file, :line).join(":")] }
      end
    end
  end
end
