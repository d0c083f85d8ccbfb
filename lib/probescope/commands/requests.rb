# frozen_string_literal: true

require_relative "traced"
require_relative "../host/histogram"
require_relative "../host/steps"

module Probescope
  module Commands
    # Requests of a web application, by method and route.
    class Requests < Traced
      PROGRAM = "requests.bt"
      USAGE = "requests -p PID [options]"
      ABOUT = <<~TEXT
        Which requests does the application answer, how fast, and which fail? Rails applications tell of requests by themselves; others
        with one line: `use Probescope::Rack`, `app = probescope.wsgi(app)`, `app = probescope.asgi(app)`. A request lasts until its body
        is closed. Sorted by SHARE.

          SHARE   of the time of all requests
          P50 P99 half of them, and 99 of 100, took this long or less, to 3 %
          STATUS  each route has a row for its answers of 200 to 299 (2xx), 300 to 399, 400 to 499, 500 and more: an error is answered in
                  another time. - is what was not answered; --json counts each status
          ROUTE   the framework's template (/orders/:id), else the path, with * for numbers and ids, and (not found) for what
                  is answered with 404; long ones are cut at the left
      TEXT
      EXAMPLES = <<~TEXT
        probescope requests -p 4711                       for 10 seconds
        probescope requests -p 4711 --workers -d 60       of each worker of a server, as one table; --by-pid tells them apart
        probescope requests -p 4711 --json | jq '.rows[] | {route, status, p99_ns, statuses}'
      TEXT
      LINES = "`use Probescope::Rack`, `probescope.wsgi(app)` or `probescope.asgi(app)` (docs/how-to/which-requests-are-slow-or-fail.md)"
      MIN = "the time of all requests"
      NOTHING = "no request ended in that time"
      # A request is told when it ends, by what was noted when it began.
      NOT_COVERED = "not covered: requests that were under way when the interval began or ended"
      # Times are counted in some forty steps for each route and process. Half as many take 39 MB, all maps together.
      KEYS = 32_768
      HEADINGS = [">SHARE", ">REQUESTS", ">PER S", ">MEAN", ">P50", ">P99", ">MAX", "STATUS", "METHOD", "ROUTE"].freeze
      # By the first digit.
      STATUSES = {1 => "1xx", 2 => "2xx", 3 => "3xx", 4 => "4xx", 5 => "5xx"}.freeze
      FAILED = 5

      private

      def rows(trace)
        steps, statuses = %w[steps statuses].map { |map| trace.parts(map) }
        found = trace.rows.map { |row| requests(row, trace, steps, statuses) }
        all = sum(found, :total_ns)
        sorted(found, :total_ns, :count).map do |row|
          share = ratio(row[:total_ns], all)
          row.merge(time_share: share, share: share)
        end
      end

      def requests(row, trace, steps, statuses)
        method, route, digit = row.names
        count = row.number("requests") || 0
        total = row.number("elapsed_ns")
        times = of(row, steps)
        taken = Host::Steps.new(times.values.sum < count ? {} : times) # percentiles of some of them would be wrong
        max = row.number("max_ns")
        {method: known(method), route: known(route), status: STATUSES[digit], count: count,
         per_second: ratio(count, trace.seconds)&.round(2), total_ns: total,
         mean_ns: ratio(total, count)&.round, p50_ns: taken.quantile(0.5, max), p99_ns: taken.quantile(0.99, max), max_ns: max,
         errors: digit == FAILED ? count : 0, statuses: of(row, statuses).sort.to_h, histogram: taken.histogram}
      end

      def check(trace)
        super
        say("nothing in #{list(trace.pids)} tells of requests or jobs: #{LINES}") if trace.any? && silent?(trace)
        counted, timed = %w[requests steps].map { |map| trace.values(map).sum { |number| Host::Trace.number(number) } }
        return if timed == counted

        say("#{counted - timed} times had no room, and their routes have no percentiles: give bpftrace's maps more: " \
            "PROBESCOPE_MAP_KEYS=#{keys * 4}")
      end

      # Those that ended are not asked: they may have had it.
      def silent?(trace) = trace.targets.none? { |target| target[:tells_of_requests] }

      # {step or status => count} of a row, of all its processes.
      def of(row, parts)
        row.keys.map { |key| parts.fetch(key, {}) }.reduce({}) { |all, one| all.merge(one) { |_, a, b| a + b } }
      end

      def cells(row)
        [Host::Figure.share(row[:time_share]), Host::Figure.count(row[:count]), Host::Figure.decimal(row[:per_second]),
         *row.values_at(:mean_ns, :p50_ns, :p99_ns, :max_ns).map { |time| Host::Figure.time(time) },
         status(row), row[:method] || "-", row[:route] || "-"]
      end

      # A row's only status as it is.
      def status(row)
        only = row[:statuses].keys
        only.size == 1 && only.first.positive? ? only.first.to_s : row[:status] || "-"
      end

      def below(rows)
        Host::Histogram.render("TIME", Host::Histogram.merge(rows.map { |row| row[:histogram] })) { |ns| Host::Figure.time(ns) }
      end
    end
  end
end
