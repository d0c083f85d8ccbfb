# frozen_string_literal: true

require_relative "table"
require_relative "../tracing/histogram"
require_relative "../tracing/steps"

module Probescope
  module Commands
    # Requests of a web application, by method and route.
    class Requests < Table
      PROGRAM = "requests.bt"
      USAGE = "requests -p PID [options]"
      ABOUT = <<~TEXT
        Which requests does the application answer, how fast, and which fail? Rails applications report
        requests without a change, others with one line: `use Probescope::Rack`,
        `app = probescope.wsgi(app)`, `app = probescope.asgi(app)`. A request lasts until its body is
        closed. Sorted by SHARE.

          SHARE   of the time of all requests
          P50 P99 half of the requests, and 99 of 100, took this long or less, to 3 %
          STATUS  each route has a row for each class of statuses, 200 to 299 (2xx), 300 to 399, 400 to 499,
                  500 and more, because errors take a different time. - is a request without an answer.
                  --json counts each status.
          ROUTE   the framework's template (/orders/:id), otherwise the path, with * for numbers and ids,
                  and (not found) for answers with 404; long routes are cut at the left
      TEXT
      EXAMPLES = <<~TEXT
        probescope requests -p 4711                       for 10 seconds
        probescope requests -p 4711 --workers -d 60       of each worker of a server, as one table; --by-pid tells them apart
        probescope requests -p 4711 --json | jq '.rows[] | {route, status, p99_ns, statuses}'
      TEXT
      MIN = "the time of all requests"

      class Report < Tracing::Report
        # {first digit of a status => its class}
        STATUSES = {1 => "1xx", 2 => "2xx", 3 => "3xx", 4 => "4xx", 5 => "5xx"}.freeze
        FAILED = 5

        def rows
          steps, statuses = %w[steps statuses].map { |map| result.parts(map) }
          found = result.rows.map { |row| requests(row, steps, statuses) }
          all = sum(found, :total_ns)
          sorted(found, :total_ns, :count).map { |row| row.merge(time_share: ratio(row[:total_ns], all)) }
        end

        def share(row) = row[:time_share]

        def below(shown)
          times = Tracing::Histogram.merge(shown.rows.map { |row| row[:histogram] })
          Tracing::Histogram.render("TIME", times) { |ns| Tracing::Figure.time(ns) }
        end

        # How many requests had no room in bpftrace's map of times.
        def untimed
          counted, timed = %w[requests steps].map do |map|
            result.values(map).sum { |number| Tracing::Result.number(number) }
          end
          counted - timed
        end

        private

        def live? = true

        def requests(row, steps, statuses)
          method, route, digit = row.names
          count = row.number("requests") || 0
          total = row.number("elapsed_ns")
          times = of(row, steps)
          # Percentiles over a part of the requests would be wrong.
          taken = Tracing::Steps.new(times.values.sum < count ? {} : times)
          max = row.number("max_ns")
          {method: known(method), route: known(route), status: STATUSES[digit], count: count,
           per_second: per_second(count), total_ns: total,
           mean_ns: ratio(total, count)&.round, p50_ns: taken.quantile(0.5, max),
           p99_ns: taken.quantile(0.99, max), max_ns: max, errors: digit == FAILED ? count : 0,
           statuses: of(row, statuses).sort.to_h, histogram: taken.histogram}
        end

        # {step or status => count} of a row, summed over its processes.
        def of(row, parts)
          row.keys.map { |key| parts.fetch(key, {}) }
             .reduce({}) { |all, one| all.merge(one) { |_, a, b| a + b } }
        end
      end

      private

      def check(result)
        super
        silent(result)
        report = report_of(result)
        return if report.untimed.zero?

        say("#{report.untimed} times had no room, and their routes have no percentiles: " \
            "give bpftrace's maps more: PROBESCOPE_MAP_KEYS=#{keys * 4}")
      end
    end
  end
end
