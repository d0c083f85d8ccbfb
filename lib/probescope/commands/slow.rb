# frozen_string_literal: true

require_relative "table"
require_relative "../tracing/nearest"
require_relative "../tracing/slow_calls"

module Probescope
  module Commands
    # Single slow calls, each below its caller.
    class Slow < Table
      ALL = "functions of gems, packages and the standard library too"
      WIDENED = true
      USAGE = "slow -p PID [options]"
      ABOUT = <<~TEXT
        Which calls took long, for which request, and where inside? Shows every call of the application's
        own functions (--all: of all functions) that took at least --threshold, and began and ended in the
        interval. The longest call comes first. The slow calls that it made follow, indented. Calls that
        only made the next call are left out, except in --json. Every call is timed, which costs it about
        0.1 us.

          ELAPSED  time with all callees, including the time in which its fiber, generator or task was
                   suspended
          SELF     time in the function itself, and in code that is not timed: gems, packages, the standard
                   library, C
          ENDED    time of day
          REQUEST  with --by-request: method and route; (running) where the request has not ended
          TRACE    trace id of the current OpenTelemetry span, otherwise of the request; --json has
                   the whole traceparent
      TEXT
      EXAMPLES = <<~TEXT
        probescope slow -p 4711                                     calls of 10 ms and more, for 10 seconds
        probescope slow -p 4711 --workers --threshold 250ms -d 60   in each worker of a server
        probescope slow -p 4711 --function 'OrdersController#*'     one class; of Python 'shop.orders.Orders.*'
        probescope slow -p 4711 --by-request                        for which requests
        probescope slow -p 4711 --json | jq -r '.rows[] | [.elapsed_ns, .function, .traceparent] | @tsv'
      TEXT
      MIN = nil
      BY_REQUEST = true

      # Calls, sorted by duration, each before the calls that it made.
      class Report < Tracing::Report
        RUNNING = [nil, "(running)"].freeze

        # How many calls were left out because they only made the next one.
        attr_reader :left_out

        # whole: whether calls that only made the next one are kept. threshold: ns. The block
        # returns whether a function of this name is shown.
        def initialize(result, definition, by_request:, whole:, threshold:, &wanted)
          super(result, definition, by_request: by_request)
          @whole = whole
          @threshold = threshold
          @wanted = wanted
          @left_out = 0
        end

        def rows
          calls = Tracing::SlowCalls.new(result.rows_apart.map { |row| call_of(row) }) do |row|
            @wanted.call(row[:function].to_s)
          end
          @left_out = calls.leave_out_relays unless @whole
          calls.rows
        end

        def nothing = "no call of the application took #{Tracing::Figure.time(@threshold)} #{Measuring::ALL_HINT}"

        def below(shown)
          left_out = shown.reports.sum(&:left_out)
          if left_out.positive?
            "left out: #{Tracing::Figure.count(left_out)} calls that only made the next one; --json has them"
          end
        end

        private

        def live? = true

        def call_of(row)
          id, parent = row.values("ids").map { |value| Tracing::Result.number(value) & Tracing::Result::ID }
          told = {elapsed_ns: row.number("elapsed_ns"), self_ns: row.number("self_ns"),
                  at: Tracing::Clock.iso(result.time(row.number("at"))),
                  outcome: Tracing::Definitions::OUTCOMES.fetch(row.number("outcome"), nil),
                  thread_id: row.number("thread"), traceparent: known(row.names[3])}
          Tracing::SlowCalls::Call.new(id, parent, request(row).merge(named(row, :function), told))
        end

        def request(row)
          id = row.number("request_id") or return {}
          found = id.zero? ? [] : result.requests.fetch(Tracing::Result.request(id), RUNNING)
          {method: found.first, route: found.last}
        end
      end

      def initialize
        super
        @threshold = Tracing::Program::SLOW
      end

      private

      def options(parser)
        super
        parser.on("--threshold TIME",
                  "the shortest call to show, 10ms by default, 1ms at least: 1ms, 25ms, 1.5s") do |text|
          time = slow(text, "--threshold", "--threshold 1ms, or probescope calls")
          @threshold = [time, Tracing::Program::LONGEST].min
        end
        parser.on("--function GLOB", "only functions with such a name: 'Order#*', '*.find'") do |text|
          @function = text
        end
      end

      # No --sort: each call is shown below its caller.
      def sortable = []

      def program = "#{Tracing::Program.threshold(@threshold)}.bt"

      def program_arguments = [@threshold.to_s, "keep", *super]

      def check(result)
        super
        slow = result.rows.map { |row| row.names.first }
        return if @function.nil? || slow.empty? || slow.any? { |name| wanted?(name) }

        raise Tracing::Error.new("no function like #{@function} took #{Tracing::Figure.time(@threshold)}; " \
                              "the nearest of those that did: " \
                              "#{Tracing::Nearest.names(@function, slow).join(", ")}",
                                 "probescope calls -p #{result.pids.first}")
      end

      def wanted?(name) = @function.nil? || File.fnmatch?(@function, name, File::FNM_EXTGLOB)

      def report_of(part)
        Report.new(part, definition, by_request: @by_request, whole: @json, threshold: @threshold) do |name|
          wanted?(name)
        end
      end
    end
  end
end
