# frozen_string_literal: true

require "opentelemetry/sdk"
require "opentelemetry-metrics-sdk"

module Probescope
  module Otel
    # The metrics of one Resource, added up since the beginning.
    class Series
      # OpenTelemetry's own limit of attribute sets for one metric; the rest is in one that says so.
      MOST = 2000
      OVERFLOW = {"otel.metric.overflow" => true}.freeze
      POINT = OpenTelemetry::SDK::Metrics::Aggregation::NumberDataPoint
      DATA = OpenTelemetry::SDK::Metrics::State::MetricData

      # What tells processes of one service apart: Prometheus keeps figures by service and instance
      # alone, and forked workers say that they are the instance that their parent is. Not a name of
      # the Resource's: other backends put those beside it, and take none twice.
      PROCESS = "probescope.process"

      # unit: of UCUM. kind: :counter, :up_down_counter, or :gauge, of which the largest of an
      # interval counts.
      Metric = Struct.new(:name, :unit, :description, :kind)

      def initialize(resource, scope)
        @resource = resource
        @scope = scope
        @began = Time.now
        @points = {} # metric => {attributes => value}
        @identity = identity(resource.attribute_enumerator.to_h)
      end

      def add(metric, attributes, value)
        points = (@points[metric] ||= Hash.new(0))
        attributes = OVERFLOW if points.size >= MOST - 1 && !points.key?(attributes)
        before = points[attributes]
        points[attributes] = metric.kind == :gauge ? [before, value].max : before + value
      end

      # value: all of it since the beginning, or of now.
      def set(metric, attributes, value) = (@points[metric] ||= {})[attributes] = value

      # Array of the SDK's MetricData as of now. Gauges begin anew.
      def collect
        time = nanoseconds(Time.now)
        @points.map { |metric, points| data(metric, points, time) }
               .tap { @points.delete_if { |metric, _| metric.kind == :gauge } }
      end

      private

      # "4711", or "1@" and how containers are called for short.
      def identity(resource)
        {PROCESS => [resource["process.pid"], resource["container.id"]&.slice(0, 12)].compact.join("@")}
      end

      def nanoseconds(time) = (time.to_i * 1_000_000_000) + time.nsec

      def data(metric, points, time)
        began = nanoseconds(@began)
        points = points.map do |attributes, value|
          POINT.new({**attributes, **@identity}, began, time, value, nil)
        end
        fields = {name: metric.name, description: metric.description, unit: metric.unit,
                  instrument_kind: metric.kind, resource: @resource, instrumentation_scope: @scope,
                  data_points: points, start_time_unix_nano: began, time_unix_nano: time,
                  aggregation_temporality: :cumulative, is_monotonic: metric.kind == :counter}
        DATA.new(*DATA.members.map { |member| fields[member] })
      end
    end
  end
end
