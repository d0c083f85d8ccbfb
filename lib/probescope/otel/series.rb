# frozen_string_literal: true

require "opentelemetry/sdk"
require "opentelemetry-metrics-sdk"

module Probescope
  module Otel
    # The metrics of one Resource, cumulative since the beginning.
    class Series
      # OpenTelemetry's limit of attribute sets for one metric. Further values are added up under
      # OVERFLOW.
      MOST = 2000
      OVERFLOW = {"otel.metric.overflow" => true}.freeze
      POINT = OpenTelemetry::SDK::Metrics::Aggregation::NumberDataPoint
      DATA = OpenTelemetry::SDK::Metrics::State::MetricData

      # Attribute that tells processes of one service apart. Prometheus identifies figures only by
      # service and instance, and forked workers report their parent's instance. It is no attribute
      # of the Resource, because other backends copy those onto the figures, and refuse duplicates.
      PROCESS = "probescope.process"

      # unit: a UCUM unit. kind: :counter, :up_down_counter, or :gauge. A gauge keeps the largest
      # value of an interval.
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

      # value: the total since the beginning, or the current value.
      def set(metric, attributes, value) = (@points[metric] ||= {})[attributes] = value

      # Returns an Array of the SDK's MetricData, as of now. Gauges are reset.
      def collect
        time = nanoseconds(Time.now)
        @points.map { |metric, points| data(metric, points, time) }
               .tap { @points.delete_if { |metric, _| metric.kind == :gauge } }
      end

      private

      # "4711", or "1@" and the container's short id.
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
