# frozen_string_literal: true

require "opentelemetry/sdk"
require "securerandom"
require_relative "trace_parent"

module Probescope
  module Otel
    # Makes the SDK's SpanData from trees of slow calls (Assembly). The parent of a span is always a
    # span of the same tree, or a span of the application.
    class Spans
      DATA = OpenTelemetry::SDK::Trace::SpanData
      STATUS = OpenTelemetry::Trace::Status
      SAMPLED = OpenTelemetry::Trace::TraceFlags::SAMPLED
      NO_PARENT = OpenTelemetry::Trace::INVALID_SPAN_ID
      RAISED = 1
      # In ns. SKEW: the largest difference between two clocks. DELAY: the longest time between the
      # end of a call and its event, on a busy machine.
      SKEW = 1_000_000
      DELAY = 100_000_000
      OUTCOMES = %w[returned raised suspended].freeze
      INCOMPLETE = "probescope.incomplete"

      # How many calls were in traces that the application does not sample.
      attr_reader :unsampled
      # How many traces begin with a call, because no span of the application was around it.
      attr_reader :roots
      # Why calls are missing among the spans from now on; nil when none are missing.
      attr_writer :incomplete

      # resource: OpenTelemetry::SDK::Resources::Resource. scope: InstrumentationScope.
      def initialize(resource, scope)
        @resource = resource
        @scope = scope
        @unsampled = @roots = 0
      end

      # Returns an Array of SpanData, callers first. names: {address => name}. start: ns of the time
      # of day at which bpftrace's clock was 0. events: the SDK's events by node (Raised#of).
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

      # The span of a request, or nil where its trace is not sampled. event: the event of
      # Lines::REQUEST. parts: {method: text, ...}. events: the SDK's.
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

      # https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/, which has no
      # attribute for the name of a job.
      def job(event, parts)
        [:consumer, "process #{parts[:path]}",
         {"messaging.operation.type" => "process", "messaging.operation.name" => "process",
          "messaging.system" => parts[:system], "messaging.destination.name" => parts[:queue],
          "probescope.job.name" => parts[:path],
          "error.type" => (OTHER if failed?(event))}]
      end

      # The shortest possible delay of each call's event, by node: a call began no later than its
      # callees.
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

      # The duration of a call comes from one clock, and its end from another, later. A call that
      # exceeds its caller by no more than SKEW is trimmed to fit.
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

      # The members of SpanData differ by version.
      def span(**fields) = DATA.new(*DATA.members.map { |member| fields[member] })

      def attributes(event, names)
        found = {"code.function.name" => names[event.function], "code.file.path" => names[event.path],
                 "code.line.number" => event.line, "thread.id" => event.thread_id,
                 "probescope.self_time" => event.self / 1e9, INCOMPLETE => @incomplete}
        # The probe does not report which exception left the call.
        found["error.type"] = "_OTHER" if event.outcome == RAISED
        found.compact
      end

      def status(event) = event.outcome == RAISED ? STATUS.error : STATUS.unset
    end
  end
end
