# frozen_string_literal: true

require_relative "base"
require_relative "../host/bpftrace"
require_relative "../host/client"
require_relative "../host/complaint"
require_relative "../host/descendants"
require_relative "../host/figure"
require_relative "../host/kernel"
require_relative "../host/output"
require_relative "../host/privilege"
require_relative "../host/program"
require_relative "../host/progress"
require_relative "../host/request"
require_relative "../host/trace"

module Probescope
  module Commands
    # A command that traces processes for some seconds and shows a table. A subclass has PROGRAM (in providers/),
    # HEADINGS, MIN (what --min is a share of, nil where there is none), NOTHING (said when there are no rows), perhaps WIDENED,
    # SAMPLES and OPTIONAL, and
    #   rows(trace)   hashes with the keys of its JSON rows, the most important one first; :share is taken out again and is
    #                 what --min compares
    #   cells(row)    the strings of its table, of that row alone: the rows of several processes may be made before the first is shown
    # It need not know how many processes there are: see Host::Trace for how rows of several become one, and with --by-pid
    # #rows is asked once for each process.
    class Traced < Base
      # Rows that bpftrace has room for; a row is about 1 KiB of kernel memory.
      KEYS = 16_384
      # The same for the program that tells requests apart.
      KEYS_BY_REQUEST = KEYS
      # Pages of bpftrace's buffer on each CPU for what its program prints.
      PAGES = 64
      # What --all does, and whether that takes all.bt.
      ALL = "no effect here: every file takes part anyway"
      WIDENED = false
      # Is there a program of it that tells requests apart, NAME_by_request.bt?
      BY_REQUEST = false
      # Are its figures samples, whose rate is worth a word?
      SAMPLES = false
      # What no row can have, whatever happened: a line that stands under every table, or nil.
      NOT_COVERED = nil
      # A machine is busy where threads wait for a CPU for longer than this part of the time on one.
      BUSY = 0.25
      # Is it worth tracing a process that serves a part of its probes?
      SOME = false
      # Headings of columns that are left out when they have nothing to say in any row.
      OPTIONAL = [].freeze

      def initialize
        super
        @seconds = 10.0
        @top = 20
        @min = 0.0
        @pids = []
        @warnings = []
      end

      private

      def options(parser)
        process_options(parser)
        by_pid_option(parser, "rows of each process by itself, the busiest first")
        by_request_option(parser) if self.class::BY_REQUEST
        duration_option(parser, "how long, 10 by default; it ends with the process's next flush")
        max_overhead_option(parser)
        parser.on("--all", self.class::ALL) { @all = true }
        top_option(parser, "the first N rows of the table, 20 by default; 0 for all")
        parser.on("--min PERCENT", Float, "hide rows below this share of #{self.class::MIN}") { |min| @min = min } if self.class::MIN
        parser.on("--json", "one JSON object with every row instead of the table") { @json = true }
      end

      def process_options(parser)
        parser.on("-p", "--pid PID", "a process; give several for several") { |text| @pids |= [process_id(text)] }
        parser.on("--workers", "its children too, those that it will fork as well") { @workers = true }
        parser.on("--comm NAME", "the processes of that name (`probescope ps` shows it)") { |text| @comm = text }
        parser.on("--trust", TRUST) { @trust = true }
      end

      def by_pid_option(parser, meaning)
        parser.on("--by-pid", meaning) { @by_pid = true }
      end

      def by_request_option(parser)
        parser.on("--by-request", "rows of each method and route by itself, - for what is in no request") { @by_request = true }
      end

      def duration_option(parser, meaning)
        parser.on("-d", "--duration SECONDS", Float, meaning) do |seconds|
          raise CLI::Usage.new("-d takes a positive number of seconds", "-d 10") unless seconds.positive? && seconds.finite?

          @seconds = seconds
        end
      end

      def max_overhead_option(parser)
        parser.on("--max-overhead PERCENT", "end early once looking takes more of the process's CPU time, such as 5%") do |text|
          number = Float(text.delete_suffix("%"), exception: false)
          raise CLI::Usage.new("--max-overhead takes a percentage above 0", "--max-overhead 5%") unless number&.positive?

          @max_overhead = number / 100
        end
      end

      def top_option(parser, meaning)
        parser.on("--top N", Integer, meaning) do |top|
          raise CLI::Usage.new("--top takes 0 or more", "--top 20") if top.negative?

          @top = top
          @top_given = true
        end
      end

      def call
        prepare
        report(trace_processes)
      end

      # Before anything is heard.
      def prepare
        say("--top is for tables: JSON has every row") if @json && @top_given && @top.positive?
      end

      # Shows a trace. Returns the exit status.
      def report(trace)
        check(trace)
        shown = @by_pid ? split(trace) : merged(trace)
        @json ? print_json(trace, shown) : print_table(trace, shown)
        0
      end

      # rows: those to show. below: how many rows are below --min. more: how many of the others have no room.
      Shown = Struct.new(:rows, :below, :more)

      def merged(trace)
        found = rows(trace)
        wanted = found.select { |row| (row.delete(:share) || 0) * 100 >= @min }
        rows = @top.positive? && !@json ? wanted.first(@top) : wanted
        Shown.new(rows, found.size - wanted.size, wanted.size - rows.size)
      end

      # The same for each process by itself: shares are those of the process, --top and --min count for each.
      def split(trace)
        parts = trace.by_process.map do |pid, part|
          merged(part).tap { |shown| shown.rows.map! { |row| {pid: pid}.merge(row) } }
        end
        Shown.new(parts.flat_map(&:rows), parts.sum(&:below), parts.sum(&:more))
      end

      def trace_processes
        raise CLI::Usage.new("which process? -p PID is missing", "probescope ps") if @pids.empty? && !@comm

        Host::Kernel.new.check
        bpftrace = Host::Bpftrace.find
        Host::Client.open(Host::Privilege.new.prefix(bpftrace)) do |client|
          progressing do |progress|
            @client = client
            ending_early(client) do
              client.trace(order) do |answer|
                progress.count if answer[:is] == "counting"
                told(answer)
              end
            end
          end
        end
        result
      end

      # Takes an answer of the helper, of which bpftrace's lines are a part.
      def told(answer)
        case answer[:is]
        when "output" then output << answer[:line]
        when "leaving" then output.deaf = true
        when "ended" then @ended = answer
        else heard(answer)
        end
      end

      # What was told, once it is all.
      def result = Host::Trace.new(output, @ended, program_path)

      # What takes bpftrace's output.
      def output = @output ||= listen
      def listen = Host::Output.new

      # Other answers of the helper.
      def heard(_answer) = nil

      def progressing(&block) = Host::Progress.show(@seconds, &block)

      # The file in providers/.
      def program = self.class::PROGRAM

      def program_path = Host::Program.path(@by_request ? program.sub(".bt", "_by_request.bt") : program)

      # What it finds in $2 and later: by itself, when the interval of a process ends.
      def program_arguments = [Host::Program.closing(@seconds)]

      # What the helper is asked for: Host::Request.
      def order
        files = [program_path, *(Host::Program.path("all.bt") if @all && self.class::WIDENED)]
        {pids: @pids, comm: @comm, workers: @workers || false, trust: @trust || false,
         programs: files.map { |path| File.basename(path, ".bt") }, arguments: program_arguments, seconds: @seconds,
         max_overhead: @max_overhead, keys: keys, pages: self.class::PAGES, some: self.class::SOME}
      end

      def keys
        default = @by_request ? self.class::KEYS_BY_REQUEST : self.class::KEYS
        number = Integer(ENV.fetch("PROBESCOPE_MAP_KEYS", default), exception: false)
        return number if number&.between?(1, Host::Request::MOST_KEYS)

        raise CLI::Usage.new("PROBESCOPE_MAP_KEYS is no number of rows up to #{Host::Request::MOST_KEYS}", "unset PROBESCOPE_MAP_KEYS")
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
        raise Host::Error.new(trace.error, doctor(trace.pids)) if trace.error
        raise Host::Complaint.error(trace.stderr, "failed", doctor(trace.pids)) if trace.reason == :tracer_ended

        check_served(trace)
        trace.notes.each { |note| say(note) }
        check_taken_out(trace)
        check_overhead(trace)
        check_slowed(trace)
        check_busy(trace) if self.class::SAMPLES
        check_ends(trace)
        check_torn(trace)
        raise nothing_known(trace) unless known?(trace)

        check_others(trace.others)
        check_lost(trace.lost)
      end

      def nothing_known(trace)
        Host::Error.new("no process finished an interval in that time: nothing is known", doctor(trace.pids))
      end

      # Is there anything to show?
      def known?(trace) = trace.any?

      def doctor(pids) = "probescope doctor -p #{pids.first}"

      def check_overhead(trace)
        return unless trace.reason == :too_dear

        say("ended after #{format("%.1f", trace.seconds)} s: looking took #{Host::Figure.share(looking_share(trace))} of the CPU time, " \
            "more than --max-overhead #{format("%g", @max_overhead * 100)}%")
      end

      # The profile hook of CPython 3.11 makes each instruction dearer, which no clock in a hook sees.
      def check_slowed(trace)
        return if Host::Program.probes(program_path).grep(/\Afunction__/).empty?

        slowed = trace.targets.select { |target| target[:runtime] == "python" && target[:version].start_with?("3.11.") }
        pids = slowed.map { |target| target[:pid] }
        say("#{list(pids)}: CPython 3.11 runs all code slower while functions are traced; what looking took is without that") if pids.any?
      end

      # Ruby's samples are taken at ticks of the kernel, which come too seldom to threads that had to wait for a CPU.
      def check_busy(trace)
        trace.processes.zip(trace.targets) do |one, target|
          delay = target[:run_delay_ns]
          next unless target[:runtime] == "ruby" && one.cpu_ns && delay && delay > one.cpu_ns * BUSY

          ran, waited = [one.cpu_ns, delay].map { |ns| Host::Figure.time(ns) }
          say("the machine is busy: threads of process #{one.pid} ran for #{ran} and waited #{waited} for a CPU; what runs " \
              "for a few ms between two waits has too few samples (docs/reference/limits.md)")
        end
      end

      def check_torn(trace)
        say("a process flushed while bpftrace was leaving: some figures may cover a second more than others") if trace.torn?
      end

      # Probes that are not simply on: an error when no process serves one, a line when some do not.
      def check_served(trace)
        targets = trace.targets
        taken = trace.processes.to_h { |one| [one.pid, one.taken_out] }
        Host::Program.probes(program_path).each do |name|
          probes = targets.to_h { |target| [target[:pid], target[:probes][name.to_sym]] }.compact
          refused = probes.select { |_, probe| %w[refused unsupported].include?(probe[:state]) }
                          .reject { |pid, _| taken.dig(pid, name.to_sym) }
          why = "#{list(refused.keys)} #{refused.one? ? "does" : "do"} not serve #{name}: #{refused.values.first[:reason]}" if refused.any?
          raise Host::Error.new(why, doctor(refused.keys)) if refused.any? && refused.size == probes.size && !self.class::SOME

          degraded = probes.select { |_, probe| probe[:state] == "degraded" }
          say(why) if refused.any?
          say(only_in_part(degraded.keys, name, degraded.values.first[:reason])) if degraded.any?
        end
      end

      def only_in_part(pids, probe, reason) = "#{list(pids)} #{pids.one? ? "serves" : "serve"} #{probe} only in part: #{reason}"

      # Probes that processes took out themselves, and what they say of their own settings.
      def check_taken_out(trace)
        trace.targets.map { |target| target.values_at(:pid, :note) }.reject { |_, note| note.to_s.empty? }.each do |pid, note|
          say("process #{pid} says: #{note}")
        end
        trace.processes.each do |one|
          one.taken_out.each do |name, time|
            reason = trace.targets.find { |target| target[:pid] == one.pid }.dig(:probes, name, :reason)
            say("#{name} of process #{one.pid} counts until #{clock(time)} alone: #{reason}")
          end
        end
      end

      def list(pids) = pids.one? ? "process #{pids.first}" : "processes #{numbers(pids)}"

      # The first of them, where there are many.
      def numbers(pids) = "#{pids.first(8).join(", ")}#{", ..." if pids.size > 8}"

      def check_ends(trace)
        left_out = trace.processes.select(&:left_out)
        ended = trace.targets.select { |target| target[:ended] }.map { |target| target[:pid] } - left_out.map(&:pid)
        say("#{list(ended)} ended while #{ended.one? ? "it was" : "they were"} traced; this is what was told until then") if ended.any?
        left_out.group_by(&:left_out).each do |why, all|
          say("nothing is known of #{list(all.map(&:pid))}, which #{all.one? ? "is" : "are"} left out: #{why}")
        end
        return if trace.strangers.empty?

        say("#{list(trace.strangers)} came later with another library, and nobody traced #{trace.strangers.one? ? "it" : "them"}: " \
            "run the command again")
      end

      def check_others(others)
        return if others.values.sum.zero?

        which = case others[:processes]
                when 0 then "other processes that have ended had the same library and were"
                when 1 then "1 other process has the same library and was"
                else "#{others[:processes]} other processes have the same library and were"
                end
        say("#{which} switched on too; rows left out: #{others[:rows]}")
      end

      def check_lost(lost)
        lost.each { |what, number| say(format(LOST.fetch(what), number: number, keys: keys * 4)) if number.positive? }
      end

      LOST = {
        events: "%<number>d events were lost between the kernel and bpftrace",
        rows: "%<number>d events had no row of their own: the process's memory for names is full (see (overflow))",
        map_full: "%<number>d rows were dropped: bpftrace's maps are full; give them room: PROBESCOPE_MAP_KEYS=%<keys>d",
        samples: "%<number>d samples could not be taken",
        details: "%<number>d exception details were over the limit of 10 a second"
      }.freeze

      # A line on stderr, which JSON has among its warnings.
      # Once: what commands say while they run is true at their end, too.
      def say(text)
        return if @warnings.include?(text)

        @warnings << text
        warn("probescope: #{Host::Text.clean(text)}")
      end

      def print_json(trace, shown)
        rate = self.class::SAMPLES ? {sample_rate: trace.sample_rate} : {}
        puts Host::Text.json({schema: SCHEMA, command: name, pids: trace.counted, **interval(trace), **rate,
                              processes: trace.processes.map { |one| covered(one) }, rows: shown.rows, rows_left_out: shown.below,
                              not_covered: not_covered, lost: trace.lost, others: trace.others, warnings: @warnings})
      end

      # cpu_share: of one processor. looking_share: of it, what the hooks took; nil where the library does not tell.
      def interval(trace)
        {begin: iso(trace.from), end: iso(trace.to), seconds: trace.seconds,
         cpu_share: ratio(trace.cpu_ns, trace.seconds * 1e9), looking_share: looking_share(trace)}
      end

      def covered(one)
        {pid: one.pid, begin: iso(one.begin), end: iso(one.end), seconds: one.wall_ns && (one.wall_ns / 1e9).round(3),
         cpu_share: one.wall_ns && ratio(one.cpu_ns, one.wall_ns),
         looking_share: one.looking_ns && ratio(one.looking_ns, one.cpu_ns), waited_ns: one.waited_ns, left_out: one.left_out,
         taken_out: one.taken_out.map { |probe, time| {probe: probe, at: iso(time)} }}
      end

      # Part of the CPU time of the processes that looking took; nil unless all of them tell.
      def looking_share(trace)
        all = trace.processes.reject(&:left_out)
        ratio(all.sum(&:looking_ns), trace.cpu_ns) if all.any? && all.all?(&:looking_ns)
      end

      def iso(time) = time&.strftime("%Y-%m-%dT%H:%M:%S.%6NZ")

      def print_table(trace, shown)
        puts head(trace)
        return puts(*[none(trace, shown), *not_covered].map { |line| "  #{line}" }) if shown.rows.empty?

        require_relative "../host/table"
        puts "", table(shown.rows)
        puts "", left_out_rows(shown) if shown.more.positive? || shown.below.positive?
        more = [below(shown.rows), *not_covered].compact
        puts "", *more if more.any?
      end

      def left_out_rows(shown)
        [("#{Host::Figure.count(shown.more)} more rows; --top 0 shows all" if shown.more.positive?),
         ("#{Host::Figure.count(shown.below)} rows below --min #{format("%g", @min)}" if shown.below.positive?)].compact.join("; ")
      end

      # What the figures are of: processes and their interval.
      def head(trace)
        all = trace.processes.reject(&:left_out)
        ["#{name} of #{processes(trace.counted)}, #{format("%.1f", trace.seconds)} s, " \
         "#{Host::Figure.share(ratio(trace.cpu_ns, trace.seconds * 1e9))} CPU#{rate(trace)}#{looking(trace)}",
         "#{span(trace.from, trace.to)}#{waited(all.filter_map(&:waited_ns))}", *shorter(all, trace.seconds * 1e9)]
      end

      def looking(trace)
        share = looking_share(trace)
        ", #{Host::Figure.share(share)} of it for looking" if share
      end

      def span(from, to) = "from #{clock(from)} to #{clock(to)}"

      # Of this machine.
      def clock(time) = time ? time.localtime.strftime("%H:%M:%S.%L") : "-"

      def waited(times)
        "; waited #{"up to " if times.size > 1}#{Host::Figure.time(times.max)} for the hooks" if times.any?
      end

      # Processes whose interval is not that of all, as those that came later.
      def shorter(all, wall_ns)
        short = all.select { |one| one.wall_ns < wall_ns * 0.9 }
        lines = short.first(8).map do |one|
          "  process #{one.pid} #{span(one.begin, one.end)}, #{format("%.1f", one.wall_ns / 1e9)} s"
        end
        lines << "  and #{short.size - 8} more were not covered all the time; --json has the intervals of each" if short.size > 8
        lines
      end

      def rate(trace) = (", #{format("%.0f", trace.sample_rate)} samples a second of it" if self.class::SAMPLES && trace.sample_rate)

      def table(rows)
        columns = self.class::HEADINGS.zip(rows.map { |row| cells(row) }.transpose)
        columns.reject! { |heading, cells| self.class::OPTIONAL.include?(heading) && cells.all?("-") }
        columns.unshift(["REQUEST", rows.map { |row| request_cell(row) }]) if @by_request
        columns.unshift([">PID", rows.map { |row| row[:pid].to_s }]) if @by_pid
        Host::Table.render(columns.map(&:first), columns.map(&:last).transpose)
      end

      def processes(pids) = pids.one? ? "process #{pids.first}" : "#{pids.size} processes (#{numbers(pids)})"

      def none(trace, shown)
        shown.below.zero? ? [nothing, *left_out(trace.pids)].join("; ") : "every row (#{shown.below}) is below --min"
      end

      # Servers leave their work to processes that they fork.
      def left_out(pids)
        children = @workers ? [] : pids.flat_map { |pid| Host::Descendants.of(pid) } - pids
        "--workers takes #{children.one? ? "its child" : "its #{children.size} children"}, too" if children.any?
      end

      def nothing = self.class::NOTHING

      # Text under the table, or nil.
      def below(_rows) = nil

      # What the figures leave out by their nature, a line each.
      def not_covered = [self.class::NOT_COVERED].compact

      # {method:, route:} of a row, for its JSON; {} when nobody asked. The row's last name is the request's number.
      def request(row, trace)
        return {} unless @by_request

        method, route = trace.requests[Host::Trace.request(row.names.last)]
        {method: route && method, route: route || method}
      end

      def request_cell(row) = row.values_at(:method, :route).compact.join(" ").then { |text| text.empty? ? "-" : text }

      # A place that a program keeps as (file, line): "app.rb:12", or nil.
      def place(row, map) = row.values(map)&.then { |file, line| known(file) && "#{file}:#{line}" }

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
