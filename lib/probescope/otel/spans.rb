# frozen_string_literal: true

require "opentelemetry/sdk"
require "securerandom"
require_relative "trace_parent"

module Probescope
  module Otel
    # Makes the SDK's SpanData of trees of slow calls (Assembly). No span has a parent that is not
    # in the same tree, or that is not the application's own.
    class Spans
      DATA = OpenTelemetry::SDK::Trace::SpanData
      STATUS = OpenTelemetry::Trace::Status
      SAMPLED = OpenTelemetry::Trace::TraceFlags::SAMPLED
      NO_PARENT = OpenTelemetry::Trace::INVALID_SPAN_ID
      RAISED = 1
      # In ns: what two clocks may differ by, and what a busy machine may take from the end of a
      # call to its event.
      SKEW = 1_000_000
      DELAY = 100_000_000
      OUTCOMES = %w[returned raised suspended].freeze
      INCOMPLETE = "probescope.incomplete"

      # Calls within traces that the application does not sample.
      attr_reader :unsampled
      # Traces that begin with a call, because no span of the application was around it.
      attr_reader :roots
      # Why calls are missing among the spans that are made from now on; nil: none are.
      attr_writer :incomplete

      # resource: OpenTelemetry::SDK::Resources::Resource. scope: InstrumentationScope.
      def initialize(resource, scope)
        @resource = resource
        @scope = scope
        @unsampled = @roots = 0
      end

      # Array of SpanData, callers first. names: what an address stands for. start: ns of the day's
      # clock when bpftrace's was 0. events: the SDK's by node (Raised#of).
      def of(tree, names, start, events = {})
        made = {}.compare_by_identity
        delays = delays(tree)
        tree.each do |node, caller|
          own = TraceParent.parse(node.event.text)
          if own && !own.sampled
            @unsampled += 1
            next
          end
          made[node] = [data(node.event, own, made[caller], names, start - delays[node], events[node]), own]
        end
        made.each_value.map(&:first)
      end

      METHODS = %w[CONNECT DELETE GET HEAD OPTIONS PATCH POST PUT QUERY TRACE].freeze
      OTHER = "_OTHER"
      JOB = "JOB"

      # The span of a request, or nil where its trace is not sampled. event: Lines::REQUEST's.
      # parts: {method: text, ...}. events: the SDK's.
      def request(event, parts, start, events = nil)
        own = TraceParent.parse(event.text)
        return (@unsampled += 1) && nil unless own&.sampled

        kind, name, attributes = parts[:method] == JOB ? job(event, parts) : server(event, parts)
        attributes = {**attributes, "thread.id" => event.thread_id, INCOMPLETE => @incomplete}.compact
        ended = start + event.at
        span(name: name, kind: kind, status: failed?(event) ? STATUS.error : STATUS.unset,
             attributes: attributes,
             parent_span_id: event.parent_id.zero? ? NO_PARENT : [event.parent_id].pack("Q>"),
             parent_span_is_remote: !event.parent_id.zero?, start_timestamp: ended - event.elapsed,
             end_timestamp: ended, events: events, total_recorded_attributes: attributes.size,
             total_recorded_events: events.to_a.size, total_recorded_links: 0, resource: @resource,
             instrumentation_scope: @scope, span_id: own.span_id, trace_id: own.trace_id,
             trace_flags: SAMPLED, tracestate: OpenTelemetry::Trace::Tracestate::DEFAULT)
      end

      private

      FAILED = 500
      private_constant :FAILED

      def failed?(event) = event.status >= FAILED

      # https://opentelemetry.io/docs/specs/semconv/http/http-spans/
      def server(event, parts)
        method = parts[:method]
        known = METHODS.include?(method)
        [:server, [known ? method : "HTTP", parts[:template]].compact.join(" "),
         {"http.request.method" => known ? method : OTHER,
          "http.request.method_original" => (method unless known),
          "http.route" => parts[:template], "url.path" => parts[:path], "url.scheme" => parts[:url_scheme],
          "http.response.status_code" => (event.status if event.status.positive?),
          "error.type" => (event.status.to_s if failed?(event))}]
      end

      # https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/, which has no word
      # for what the work is called.
      def job(event, parts)
        [:consumer, "process #{parts[:path]}",
         {"messaging.operation.type" => "process", "messaging.operation.name" => "process",
          "messaging.system" => parts[:system], "messaging.destination.name" => parts[:queue],
          "probescope.job.name" => parts[:path],
          "error.type" => (OTHER if failed?(event))}]
      end

      # How late the events of calls were at least, by node: a call began no later than those that
      # it made.
      def delays(tree)
        delays = Hash.new(0).compare_by_identity
        tree.to_enum(:each).reverse_each do |node, caller|
          next if caller.nil?

          late = began(caller) - began(node) + delays[node]
          delays[caller] = late if late.between?(delays[caller] + 1, DELAY)
        end
        delays
      end

      def began(node) = node.event.at - node.event.elapsed

      # around: [SpanData, TraceParent] of the caller, or nil.
      def data(event, own, around, names, start, events)
        inside = around && around.last&.span_id == own&.span_id
        trace_id, parent = if inside then around.first.then { |span| [span.trace_id, span.span_id] }
                           elsif own then [own.trace_id, own.span_id]
                           else
                             root
                           end
        began, ended = within(around&.first, start + event.at - event.elapsed, start + event.at)
        attributes = attributes(event, names)
        span(name: names[event.function], kind: :internal, status: status(event), parent_span_id: parent,
             start_timestamp: began, end_timestamp: ended, attributes: attributes, events: events,
             total_recorded_attributes: attributes.size, total_recorded_events: events.to_a.size,
             total_recorded_links: 0, resource: @resource, instrumentation_scope: @scope,
             span_id: [event.span_id].pack("Q>"), trace_id: trace_id, trace_flags: SAMPLED,
             tracestate: OpenTelemetry::Trace::Tracestate::DEFAULT,
             parent_span_is_remote: !inside && !own.nil?)
      end

      # A call's length is taken by one clock and its end by another, later: what is out of its
      # caller by so little is within it.
      def within(caller, began, ended)
        return [began, ended] if caller.nil?

        began = caller.start_timestamp if (caller.start_timestamp - began).between?(1, SKEW)
        ended = caller.end_timestamp if (ended - caller.end_timestamp).between?(1, SKEW)
        [[began, ended].min, ended]
      end

      def root
        @roots += 1
        [SecureRandom.bytes(16), NO_PARENT]
      end

      # Its members differ by version.
      def span(**fields) = DATA.new(*DATA.members.map { |member| fields[member] })

      def attributes(event, names)
        found = {"code.function.name" => names[event.function], "code.file.path" => names[event.path],
                 "code.line.number" => event.line, "thread.id" => event.thread_id,
                 "probescope.self_time" => event.self / 1e9, INCOMPLETE => @incomplete}
        # Which one, the probe does not say.
        found["error.type"] = "_OTHER" if event.outcome == RAISED
        found.compact
      end

      def status(event) = event.outcome == RAISED ? STATUS.error : STATUS.unset
    end
  end
end
