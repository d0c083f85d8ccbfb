# frozen_string_literal: true

require "securerandom"
require_relative "series"

module Probescope
  module Otel
    # The bridge's own counters as metrics of a Resource of its own. What the bridge sends is
    # counted under the names of OpenTelemetry's SDKs, what it receives under our own names.
    class Counters
      SERVICE = "probescope-otel"
      # signal => [name and unit in the names of metrics, type of the component with the signal's
      # queue]
      SIGNALS = {"traces" => ["span", "{span}", "batching_span_processor"],
                 "logs" => ["log", "{log_record}", "batching_log_processor"],
                 "metrics" => ["metric_data_point", "{data_point}", nil]}.freeze
      RECEIVED = Series::Metric.new("probescope.bridge.received", "{event}",
                                    "What the bridge has read of processes", :counter)
      LEFT_OUT = Series::Metric.new("probescope.bridge.left_out", "{event}",
                                    "Calls and exceptions that are not to be sent", :counter)
      LOST = Series::Metric.new("probescope.bridge.lost", "{event}",
                                "What did not reach the bridge, by who had no room", :counter)
      SUPPRESSED = Series::Metric.new("probescope.bridge.suppressed", "{exception}",
                                      "Exceptions of which the process told no more than their number",
                                      :counter)
      WAITING = Series::Metric.new("probescope.bridge.waiting", "{event}",
                                   "Calls and exceptions before their export", :up_down_counter)
      CUT = Series::Metric.new("probescope.bridge.cut_short", "{time}",
                               "Times that bpftrace was killed: what it had not told since its last second " \
                               "is not counted",
                               :counter)
      LATE = Series::Metric.new("probescope.bridge.late", "{call}",
                                "Calls whose caller did not come in time", :counter)

      # environment: attributes from the bridge's environment.
      def initialize(environment, scope)
        resource = {"process.pid" => Process.pid, "service.instance.id" => SecureRandom.uuid, **environment,
                    "service.name" => SERVICE}
        @series = Series.new(OpenTelemetry::SDK::Resources::Resource.create(resource), scope)
      end

      # figures: Exporter#figures. queues: {signal => FairQueue}. Returns an Array of the SDK's
      # MetricData.
      def collect(figures, queues)
        figures[:received].each { |kind, number| @series.set(RECEIVED, {"probescope.event" => kind}, number) }
        reasons(LEFT_OUT, figures, unsampled: "unsampled", not_costly: "not_costly")
        reasons(LOST, figures,
                lost_by_the_kernel: "kernel", rows_dropped: "process", dropped_unread: "exporter")
        @series.set(SUPPRESSED, {}, figures[:details_suppressed])
        @series.set(WAITING, {}, figures[:waiting])
        @series.set(CUT, {}, figures[:cut_short])
        @series.set(LATE, {}, figures[:late])
        queues.each { |signal, queue| sent(signal, queue, figures.fetch(signal)) }
        @series.collect
      end

      private

      def reasons(metric, figures, names)
        names.each { |key, reason| @series.set(metric, {"probescope.reason" => reason}, figures.fetch(key)) }
      end

      def sent(signal, queue, figures)
        name, unit, processor = SIGNALS.fetch(signal)
        exporter = component("otlp_http_exporter", signal)
        exported = metric("otel.sdk.exporter.#{name}.exported", unit,
                          "What was sent, or not, by the type of the error")
        dropped = figures[:dropped].dup
        if processor
          queued(name, unit, component(processor, signal), queue, figures, dropped.delete("queue_full"))
        end
        @series.set(exported, exporter, figures[:exported])
        dropped.each { |reason, number| @series.set(exported, {**exporter, "error.type" => reason}, number) }
      end

      def queued(name, unit, component, queue, figures, dropped)
        processed = metric("otel.sdk.processor.#{name}.processed", unit, "What left the queue")
        @series.set(processed, component, figures[:exported] + figures[:dropped].values.sum - dropped.to_i)
        @series.set(processed, {**component, "error.type" => "queue_full"}, dropped) if dropped
        size = metric("otel.sdk.processor.#{name}.queue.size", unit, "What waits for the backend",
                      :up_down_counter)
        @series.set(size, component, queue.size)
        capacity = metric("otel.sdk.processor.#{name}.queue.capacity", unit, "What may wait for the backend",
                          :up_down_counter)
        @series.set(capacity, component, queue.most)
      end

      def component(type, signal)
        {"otel.component.type" => type, "otel.component.name" => "#{type}/#{signal}"}
      end

      def metric(name, unit, description, kind = :counter) = Series::Metric.new(name, unit, description, kind)
    end
  end
end
