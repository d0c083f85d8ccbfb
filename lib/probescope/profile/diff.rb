# frozen_string_literal: true

require_relative "../tracing/error"
require_relative "../tracing/figure"
require_relative "change"
require_relative "summary"

module Probescope
  module Profile
    # The functions whose figures differ between two recordings. The figures of both are made
    # comparable first:
    #
    #   per time     by the wall time of all processes: weight in each second of a process
    #   per request  by the number of requests that ended
    #   per cpu      by the kind's whole weight: shares
    #
    # Functions are matched by name and path, because an edit moves lines. A row has changed only if
    # the spans of time of both recordings differ by more than chance (Change), and by a share of the
    # first recording's whole.
    class Diff
      PER = %w[time request cpu].freeze
      # Spans of time into which a recording is divided: long enough that one is like the next one.
      SPANS = 20

      # A function in one recording. spans: its weight in each span.
      Side = Struct.new(:function, :weight, :spans)
      # before, after: normalised weights. share: the difference as a part of the first one's whole.
      Row = Struct.new(:name, :path, :defined, :before, :after, :difference, :share, :changed,
                       keyword_init: true)

      attr_reader :by, :per

      # before, after: Recordings. by: one of Summary::BY. per: one of PER. min: the share of the whole
      # by which a row has to differ. Raises Tracing::Misused.
      def initialize(before, after, by:, per:, min:)
        @recordings = [before, after]
        @by = by
        @per = per
        @min = min
        @factors = {}
        @wholes = {} # [side, kind] => weight of everything in each span
        check
      end

      # Whether there are too few spans of time to tell a change from chance.
      def too_short? = [0, 1].any? { |side| spans(side) < Change::LEAST }

      # The names of the kinds that both recordings have.
      def kinds = @recordings.map { |one| one.kinds.map(&:name) }.reduce(:&)

      def unit(kind) = @recordings.first.kinds[index(0, kind)].unit

      # [before, after]: the normalised weight of the whole kind.
      def wholes(kind)
        [0, 1].map { |side| @recordings[side].total(index(side, kind))[1] * factor(side, kind) }
      end

      # The factors by which weights are multiplied, which say what the figures are per.
      def factors(kind) = [0, 1].map { |side| factor(side, kind) }

      # [Row, ...], the largest difference first.
      def rows(kind) = (@rows ||= {})[kind] ||= compared(kind)

      private

      def compared(kind)
        sides = [0, 1].map { |side| side(side, kind) }
        whole = wholes(kind).first
        rows = sides.flat_map(&:keys).uniq.map { |key| row(kind, sides.map { |one| one[key] }, whole) }
        rows.sort_by { |row| [row.changed ? 0 : 1, -row.difference.abs, row.name.to_s, row.path.to_s] }
      end

      def check
        if kinds.empty?
          raise Tracing::Misused.new("the recordings have no kind in common", "two recordings of one kind")
        end
        return if @per == "cpu"

        without = @recordings.index { |one| (@per == "time" ? wall_ns(one) : requests(one)).zero? } or return
        what = @per == "time" ? "wall time" : "requests"
        raise Tracing::Misused.new("the #{%w[first second][without]} recording tells no #{what}", "--per cpu")
      end

      def wall_ns(recording) = recording.metadata.fetch(:processes, []).sum { |one| one[:wall_ns].to_i }
      def requests(recording) = recording.requests.sum(&:count)

      def index(side, kind) = @recordings[side].kinds.index { |one| one.name == kind }

      def factor(side, kind)
        @factors[[side, kind]] ||= begin
          recording = @recordings[side]
          whole = case @per
                  when "time" then wall_ns(recording) / 1e9
                  when "request" then requests(recording)
                  else recording.total(index(side, kind))[1]
                  end
          whole.zero? ? 0.0 : 1.0 / whole
        end
      end

      def row(kind, sides, whole)
        before, after = sides.each_with_index.map { |one, side| (one&.weight || 0) * factor(side, kind) }
        function = (sides.last || sides.first).function
        share = whole.zero? ? nil : (after - before) / whole
        Row.new(name: function&.name, path: function&.path, defined: function&.defined, before: before,
                after: after, difference: after - before, share: share,
                changed: !share.nil? && share.abs >= @min && changed?(kind, sides))
      end

      def changed?(kind, sides)
        values = sides.each_with_index.map { |one, side| values(one, side, kind) }
        values.all? { |one| one.size >= Change::LEAST } && Change.welch?(*values)
      end

      # The normalised weight of each span, as if all spans were like it. Shares are those of the span,
      # so that a load that goes up and down is no difference.
      def values(one, side, kind)
        weights = one ? one.spans : [0] * spans(side)
        return weights.map { |weight| weight * spans(side) * factor(side, kind) } unless @per == "cpu"

        weights.zip(@wholes[[side, kind]]).filter_map do |weight, whole|
          weight.fdiv(whole) if whole.positive?
        end
      end

      # {[name, path] => Side}. Of several functions with one name and path, the figures are added up.
      def side(side, kind)
        recording = @recordings[side]
        index = index(side, kind)
        charged = Summary.new(recording, index, @by)
        found = {}
        wholes = @wholes[[side, kind]] = [0] * spans(side)
        each_weight(recording, index) do |bucket, node, weight|
          span = [bucket * spans(side) / buckets(side), spans(side) - 1].min
          wholes[span] += weight
          charged.functions(node).each do |function|
            one = found[[function&.name, function&.path]] ||= Side.new(function, 0, [0] * spans(side))
            one.weight += weight
            one.spans[span] += weight
          end
        end
        found
      end

      def each_weight(recording, index)
        recording.each_cell do |bucket, _, kind, node, _, weight, _|
          yield bucket, node, weight if kind == index
        end
      end

      def buckets(side)
        (@buckets ||= {})[side] ||= begin
          last = 0
          @recordings[side].each_cell { |bucket, *| last = bucket if bucket > last }
          [last + 1, (@recordings[side].duration_ns.to_f / @recordings[side].bucket_ns).round].max
        end
      end

      # Spans have whole buckets, as many in each as possible.
      def spans(side)
        of_a_span = (buckets(side) / SPANS.to_f).ceil
        (buckets(side) / of_a_span.to_f).ceil
      end
    end
  end
end
