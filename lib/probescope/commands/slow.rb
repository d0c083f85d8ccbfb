# frozen_string_literal: true

require_relative "traced"
require_relative "../host/call_tree"
require_relative "../host/nearest"

module Probescope
  module Commands
    # Single calls that took long, each below the one that made it.
    class Slow < Traced
      # A probe of its own fires for calls of that many ns and more; the program for a threshold between two of them looks at each.
      PROGRAMS = {1_000_000 => "slow1ms.bt", 10_000_000 => "slow10ms.bt", 100_000_000 => "slow100ms.bt"}.freeze
      DEFAULT = 10_000_000
      ALL = "functions of gems, packages and the standard library too"
      WIDENED = true
      USAGE = "slow -p PID [options]"
      ABOUT = <<~TEXT
        Which calls took long, for which request, and where inside? Shows every call of the application's own functions (--all:
        of all functions) that took as long as --threshold, and began and ended in the interval, the longest first, and below
        it, indented, the slow ones that it made. Those between, which did nothing but make the next one, are only in --json. Every call is timed,
        which costs it about 0.1 us.

          ELAPSED  time with everything that it calls, and with the time that its fiber, generator or task stood still
          SELF     time in the function itself, and in what is not timed: gems, packages, the standard library, C
          ENDED    time of day
          REQUEST  with --by-request: method and route; (running) where it has not ended meanwhile
          TRACE    trace id of the OpenTelemetry span that was current, else of the request; the whole traceparent is in --json
      TEXT
      EXAMPLES = <<~TEXT
        probescope slow -p 4711                                     calls of 10 ms and more, for 10 seconds
        probescope slow -p 4711 --workers --threshold 250ms -d 60   in each worker of a server
        probescope slow -p 4711 --function 'OrdersController#*'     one class; of Python 'shop.orders.Orders.*'
        probescope slow -p 4711 --by-request                        for which requests
        probescope slow -p 4711 --json | jq -r '.rows[] | [.elapsed_ns, .function, .traceparent] | @tsv'
      TEXT
      MIN = nil
      # Nobody knows when a call began that was under way as its hooks came in, and how long one takes that has not ended.
      NOT_COVERED = "not covered: calls that were under way when the interval began or ended"
      BY_REQUEST = true
      HEADINGS = [">ELAPSED", ">SELF", "ENDED", ">THREAD", "FUNCTION", "DEFINED AT", "TRACE"].freeze
      # Calls are indented up to here.
      DEEPEST = 24
      # A call within another one is left out of the table when a single one that it made took this share of its time.
      PASSED_ON = 0.95
      # No call takes that long; a larger number would be none for bpftrace.
      LONGEST = 1 << 62
      # row: of the JSON; ended: Time; depth: how many of its callers are in the table.
      Call = Struct.new(:id, :parent, :row, :ended, :depth)
      # Of a row for the table alone.
      TABLE = %i[ended depth].freeze

      def initialize
        super
        @threshold = DEFAULT
        @left_out = 0
      end

      private

      def options(parser)
        super
        parser.on("--threshold TIME", "the shortest call to show, 10ms by default, 1ms at least: 1ms, 25ms, 1.5s") do |text|
          @threshold = [duration(text, "--threshold 10ms"), LONGEST].min
          raise CLI::Usage.new("no probe fires for calls under 1ms", "--threshold 1ms, or probescope calls") if program.nil?
        end
        parser.on("--function GLOB", "only functions with such a name: 'Order#*', '*.find'") { |text| @function = text }
      end

      # The one that fires least often.
      def program = PROGRAMS.select { |least, _| least <= @threshold }.values.last

      def program_arguments = [@threshold.to_s, "keep", *super]

      def check(trace)
        super
        slow = trace.rows.map { |row| row.names.first }
        return if @function.nil? || slow.empty? || slow.any? { |name| wanted?(name) }

        raise Host::Error.new("no function like #{@function} took #{Host::Figure.time(@threshold)}; the nearest of those that did: " \
                              "#{Host::Nearest.names(@function, slow).join(", ")}", "probescope calls -p #{trace.pids.first}")
      end

      def wanted?(name) = @function.nil? || File.fnmatch?(@function, name, File::FNM_EXTGLOB)

      def rows(trace)
        calls = trace.rows_apart.map { |row| call_of(row, trace) }.to_h { |call| [call.id, call] }
        made = by_caller(calls) { |call| wanted?(call.row[:function].to_s) }
        made = without_relays(calls, made) unless @json
        tree(made).map { |call| call.row.merge(ended: call.ended, depth: call.depth) }
      end

      def call_of(row, trace)
        function, file, line, traceparent = row.names
        id, parent = row.values("ids").map { |value| Host::Trace.number(value) & Host::Trace::ID }
        ended = trace.time(row.number("at"))
        Call.new(id, parent, {**request(row, trace), function: known(function), file: known(file), line: known(line),
                                                     elapsed_ns: row.number("elapsed_ns"),
                                                     self_ns: row.number("self_ns"), at: iso(ended),
                                                     outcome: Host::CallTree::OUTCOMES.fetch(row.number("outcome"), nil),
                                                     thread_id: row.number("thread"), traceparent: known(traceparent)}, ended, 0)
      end

      RUNNING = [nil, "(running)"].freeze

      def request(row, trace)
        id = row.number("request_id") or return {}
        found = id.zero? ? [] : trace.requests.fetch(Host::Trace.request(id), RUNNING)
        {method: found.first, route: found.last}
      end

      # The calls that the block wants, by the id of the nearest one of them around each, nil where there is none. calls: all, by id.
      def by_caller(calls, &wanted)
        shown = calls.each_value.select(&wanted).to_h { |call| [call.id, call] }
        nearest = shown.to_h { |id, _| [id, id] } # by the id of any call
        shown.values.group_by do |call|
          passed = []
          around = calls[call.parent]
          # Ids are what the process says: a circle must end as well.
          while around && !nearest.key?(around.id)
            nearest[around.id] = nil
            passed << around.id
            around = calls[around.parent]
          end
          nearest[around&.id].tap { |id| passed.each { |one| nearest[one] = id } }
        end
      end

      # The same, without those within others that only made the next one.
      def without_relays(calls, made)
        shown = made.values.flatten.to_h { |call| [call.id, call] }
        within = made.flat_map { |around, callees| around ? callees : [] }
        relays = within.select { |call| relay?(call, made.fetch(call.id, [])) }.each { |call| shown.delete(call.id) }
        @left_out += relays.size
        by_caller(calls) { |call| shown.key?(call.id) }
      end

      def relay?(call, callees) = callees.one? && callees.first.row[:elapsed_ns] >= call.row[:elapsed_ns] * PASSED_ON

      # Each call, and behind it those that it made.
      def tree(made)
        longest_last = ->(id) { made.fetch(id, []).sort_by { |call| [call.row[:elapsed_ns], call.row[:at]] } }
        waiting = longest_last.call(nil)
        found = []
        while (call = waiting.pop)
          found << call
          waiting.concat(longest_last.call(call.id).each { |callee| callee.depth = call.depth + 1 })
        end
        found
      end

      def print_json(trace, shown)
        shown.rows.map! { |row| row.except(*TABLE) }
        super
      end

      def nothing = "no call of the application took #{Host::Figure.time(@threshold)} (--all follows those of gems and packages too)"

      def below(_rows)
        "left out: #{Host::Figure.count(@left_out)} calls that only made the next one; --json has them" if @left_out.positive?
      end

      def cells(row)
        [*row.values_at(:elapsed_ns, :self_ns).map { |time| Host::Figure.time(time) },
         row[:ended].localtime.strftime("%H:%M:%S.%L"), row[:thread_id].to_s,
         "#{"  " * [row[:depth], DEEPEST].min}#{row[:function]}#{"  (raised)" if row[:outcome] == "raised"}", where(row),
         trace_id(row[:traceparent])]
      end

      def trace_id(traceparent) = traceparent.nil? ? "-" : traceparent[/\A\h\h-(\h{32})-/, 1] || traceparent
    end
  end
end
