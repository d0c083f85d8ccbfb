# frozen_string_literal: true

require "opentelemetry/sdk"
require "opentelemetry-logs-sdk"
require_relative "../tracing/clock"
require_relative "../tracing/text"
require_relative "assembly"
require_relative "costly"
require_relative "lines"
require_relative "raised"
require_relative "requests"
require_relative "series"
require_relative "spans"

module Probescope
  module Otel
    # One traced process in the exporter: takes its lines, and emits spans, log records and metrics.
    class Source
      # The most addresses with known names: of one process, and of all processes together.
      NAMES = 65_536
      ALL_NAMES = 1 << 21
      # The most calls that are not sent yet, over all processes; see Assembly::MOST.
      ALL_CALLS = 1 << 17
      # The most exceptions that wait for the end of their second, when it is known whether they are
      # costly.
      DETAILS = 1024
      # Seconds that a tree waits for a name that the kernel lost.
      PATIENCE = (2 * Lines::RENAME) + 1

      METRICS = {
        calls: Series::Metric.new("probescope.function.calls", "{call}", "Finished calls", :counter),
        time: Series::Metric.new("probescope.function.time", "s",
                                 "Time in the function with everything that it calls", :counter),
        self: Series::Metric.new("probescope.function.time.self", "s",
                                 "Time in the function itself", :counter),
        max: Series::Metric.new("probescope.function.time.max", "s",
                                "Longest call since the last export", :gauge),
        raised: Series::Metric.new("probescope.exceptions", "{exception}", "Exceptions raised", :counter),
        backtraces: Series::Metric.new("probescope.exception.backtrace.time", "s",
                                       "Time to capture backtraces and to turn them into strings", :counter),
        allocations: Series::Metric.new("probescope.allocations", "{object}", "Objects allocated", :counter),
        bytes: Series::Metric.new("probescope.allocation.bytes", "By", "Bytes of their slots", :counter),
        collections: Series::Metric.new("probescope.gc.collections", "{collection}",
                                        "Garbage collections", :counter),
        pauses: Series::Metric.new("probescope.gc.time", "s",
                                   "Time that garbage collections held the program", :counter),
        function_until: Series::Metric.new("probescope.function.counted_until", "s",
                                           "Unix time when PROBESCOPE_MAX_OVERHEAD took the function out",
                                           :gauge),
        probe_until: Series::Metric.new("probescope.probe.counted_until", "s",
                                        "Unix time when PROBESCOPE_MAX_OVERHEAD took the probe out", :gauge)
      }.freeze

      # The value "logs" selects log records only.
      EXCEPTIONS = "OTEL_SEMCONV_EXCEPTION_SIGNAL_OPT_IN"
      RECORD = OpenTelemetry::SDK::Logs::LogRecordData
      EVENT = OpenTelemetry::SDK::Trace::Event
      WARN = 13

      # suppressed: exceptions that the process counted only. unnamed: calls whose name was lost.
      # not_costly: exceptions that are not costly. rows_dropped: rows for which the process had no
      # room.
      attr_reader :suppressed, :unnamed, :not_costly, :rows_dropped, :spans, :assembly

      # resource: the SDK's. exceptions: "costly", "all" or "none". spans, logs: procs that take
      # arrays. limits: whether the process reports which functions it has taken out; an older
      # library does not.
      def initialize(pid, resource, scope, exceptions:, metrics:, offset:, spans:, logs:, say:, limits: false)
        @pid = pid
        @limits = limits
        @probes_until = {}
        @resource = resource
        @scope = scope
        @exceptions = exceptions
        @metrics = metrics
        @offset = offset
        @emit_spans = spans
        @emit_logs = logs
        @say = say
        @names = {}
        @series = Series.new(resource, scope)
        @spans = Spans.new(resource, scope)
        @assembly = Assembly.new { |tree| release(tree) }
        @costly = Costly.new
        @details = []
        # With "logs", exceptions are sent only as log records.
        @raised = Raised.new unless ENV[EXCEPTIONS] == "logs"
        @requests = Requests.new(@raised) { |event, parts, raised| send_request(event, parts, raised) }
        @unready = []
        self.processes = 1
        @lost = @missing = @suppressed = @unnamed = @not_costly = @rows_dropped = @received = @calls = 0
      end

      # How many processes share the total room.
      def processes=(number)
        @assembly.most = (ALL_CALLS / number).clamp(1, Assembly::MOST)
        @room_for_names = (ALL_NAMES / number).clamp(1, NAMES)
      end

      # Equal names of several processes share one String.
      def name(address, text)
        @names.shift while @names.size >= @room_for_names
        @names[address] = text.empty? ? nil : -Tracing::Text.clean(text)
      end

      def take(event, now)
        case event
        when *Requests::EVENTS then @requests.part(event)
        when Lines::REQUEST.event then single { @requests.add(event, now) }
        when Lines::SLOW.event then call(event, now)
        when Lines::DETAIL.event then single { detail(event) }
        when Lines::MESSAGE.event then message(event)
        when Lines::RAISES.event then raises(event)
        when Lines::CALLS.event then calls(event)
        when Lines::ALLOCATIONS.event then allocations(event)
        when Lines::COLLECTION.event then collection(event)
        when Lines::SECOND.event then second(event)
        end
      end

      def expire(now)
        @assembly.expire(now)
        ready, @unready = @unready.partition { |tree, since| ready?(tree) || now - since > PATIENCE }
        ready.each { |tree,| emit(tree) }
        @requests.expire(now)
      end

      # Single events that were printed in the kernel and not received, over every bpftrace so far.
      def lost = @lost + @missing

      # Records what PROBESCOPE_MAX_OVERHEAD has taken out. probes: {name => ns of CLOCK_MONOTONIC}.
      # functions: why some functions are not counted, or nil.
      def limited(probes, functions)
        @probes_until = probes.to_h { |name, ns| [{"probescope.probe" => name.to_s}, unix(ns)] }
        @spans.incomplete = functions
      end

      # Returns an Array of the SDK's MetricData, as of now.
      def figures
        @probes_until.each { |attributes, time| @series.add(METRICS[:probe_until], attributes, time) }
        @series.collect
      end

      # A new bpftrace has started, and counts its lines from 0.
      def traced = @first_told = 0

      # bpftrace has ended, and all of its output is read. number: how many lines for single events
      # it has printed. nil when bpftrace was killed before it could report that; then the number as
      # of its last second is used.
      def settle(number)
        missed(number || @told)
        @lost += @missing
        @missing = @received = 0
        @told = @first_told = nil
      end

      # Raise sites for which Costly had no room.
      def sites_left_out = @costly.left_out

      # Calls, requests and exceptions that are not sent yet.
      def waiting = @calls + @requests.size + @details.size

      # Emits everything, because no more lines will come.
      def finish
        emit_details
        @assembly.finish
        @unready.each { |tree,| emit(tree) }
        @unready = []
        @requests.finish
      end

      private

      def single
        @received += 1
        yield
      end

      def send_request(event, parts, raised)
        @emit_spans.call([@spans.request(event, parts, @offset.call, raised)].compact)
      end

      def call(event, now)
        @calls += 1
        @raised&.expect(event)
        single { @assembly.add(event, now) }
      end

      def release(tree)
        return emit(tree) if ready?(tree)

        @unready << [tree, Process.clock_gettime(Process::CLOCK_MONOTONIC)]
        emit(@unready.shift.first) while @calls - @assembly.size > @assembly.most
      end

      def ready?(tree) = named?(tree) && !@raised&.undecided?(tree)

      def named?(tree)
        tree.each { |node,| return false unless @names.key?(node.event.function) }
        true
      end

      def emit(tree)
        tree.each do |node,|
          @names[node.event.function] ||= nameless(node.event)
          @calls -= 1
        end
        @emit_spans.call(@spans.of(tree, @names, @offset.call, @raised&.of(tree) || {}))
        rootless unless @said || @spans.roots.zero?
      end

      def rootless
        @said = true
        @say.call("no OpenTelemetry span is around some calls of process #{@pid}: " \
                  "they become traces of their own")
      end

      def nameless(event)
        @unnamed += 1
        format("(name lost: %#x)", event.function)
      end

      def detail(event)
        @details << [event, nil]
        @raised&.add(event)
        emit_details if @details.size >= DETAILS
      end

      # A message follows the exception that it belongs to.
      def message(event)
        found = @details.reverse_each.find { |detail, _| detail.thread_id == event.thread_id }
        found[1] = Tracing::Text.clean(event.text) if found
      end

      def raises(event)
        @costly.add(site(event), event.backtrace_cost + event.string_cost)
        return unless @metrics

        attributes = {"exception.type" => @names[event.type], **place(event)}.compact
        @series.add(METRICS[:raised], attributes, event.raised)
        @series.add(METRICS[:backtraces], attributes, (event.backtrace_cost + event.string_cost) / 1e9)
      end

      def site(event) = [event.type, event.path, event.line]

      def place(event)
        {"code.function.name" => @names[event.function], **line(event)}
      end

      # Code without a file has no line either.
      def line(event)
        {"code.file.path" => @names[event.path], "code.line.number" => (event.line if event.line.positive?)}
      end

      def unix(monotonic) = (Tracing::Clock.monotonic_offset + monotonic) / 1e9

      def calls(event)
        attributes = place(event).compact
        if @limits && event.out.positive?
          @series.add(METRICS[:function_until], attributes, unix(event.out))
          return if event.calls.zero? # taken out before this second: its figures are not known
        end
        @series.add(METRICS[:calls], attributes, event.calls)
        @series.add(METRICS[:time], attributes, event.elapsed / 1e9)
        @series.add(METRICS[:self], attributes, event.self / 1e9)
        @series.add(METRICS[:max], attributes, event.max / 1e9)
      end

      def allocations(event)
        attributes = {"probescope.object.type" => @names[event.type], **line(event)}.compact
        @series.add(METRICS[:allocations], attributes, event.allocated)
        @series.add(METRICS[:bytes], attributes, event.bytes)
      end

      def collection(event)
        attributes = {"probescope.gc.kind" => event.text}
        @series.add(METRICS[:collections], attributes, 1)
        @series.add(METRICS[:pauses], attributes, event.elapsed / 1e9)
      end

      # A line that was printed before the previous second, and has not come yet, is lost.
      # bpftrace's count lags behind its lines, so the count of the previous second is used.
      def second(event)
        @first_told ||= event.told - @received
        missed(@told)
        @told = event.told
        @suppressed += event.details_suppressed
        @rows_dropped += event.dropped
        emit_details
        @costly.tick
      end

      # Updates how many of the first `number` lines are missing.
      def missed(number)
        @missing = [@missing, number - @first_told - @received].max if number && @first_told
      end

      def emit_details
        wanted = if @exceptions == "all"
                   @details
                 else
                   @details.select { |event, _| @costly.include?(site(event)) }
                 end
        @not_costly += @details.size - wanted.size
        @details = []
        wanted = wanted.map { |event, message| [event, attributes(event, message)] }
        @raised&.decide(wanted.map do |event, attributes|
          [event, EVENT.new("exception", attributes, @offset.call + event.at)]
        end)
        @emit_logs.call(wanted.map { |event, attributes| record(event, attributes) }) if wanted.any?
      end

      def attributes(event, message)
        {"exception.type" => @names[event.type], "exception.message" => message, **place(event),
         "thread.id" => event.thread_id, "probescope.exception.depth" => event.depth,
         "probescope.exception.backtrace.time" => event.backtrace_cost / 1e9,
         "probescope.app.file.path" => @names[event.app_file],
         "probescope.app.line.number" => (event.app_line if event.app_line.positive?)}.compact
      end

      def record(event, attributes)
        context = TraceParent.parse(event.text)
        time = @offset.call + event.at
        # The SDK's record up to version 0.4 has no field for the name of an event.
        attributes = {**attributes, "event.name" => "exception"} unless RECORD.members.include?(:event_name)
        fields = {timestamp: time, observed_timestamp: time, severity_text: "WARN", severity_number: WARN,
                  event_name: "exception", attributes: attributes, trace_id: context&.trace_id,
                  span_id: context&.span_id, trace_flags: OpenTelemetry::Trace::TraceFlags::DEFAULT,
                  resource: @resource, instrumentation_scope: @scope,
                  total_recorded_attributes: attributes.size}
        fields[:trace_flags] = OpenTelemetry::Trace::TraceFlags::SAMPLED if context&.sampled
        RECORD.new(*RECORD.members.map { |member| fields[member] })
      end
    end
  end
end
