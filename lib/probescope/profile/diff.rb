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
    #   per time  by the wall time of all processes: weight in each second of a process
    #   per cpu   by the kind's whole weight: shares
    #
    # Functions are matched by name and path, because an edit moves lines. A row has changed only if
    # the spans of time of both recordings differ by more than chance (Change), and by a share of the
    # first recording's whole.
    class Diff
      PER = %w[time cpu].freeze
      # Spans of time into which a recording is divided: long enough that one is like the next one.
      SPANS = 20
      # The part of the last bucket that the recording may lack: processes flush a moment before or after
      # a second has passed.
      TOLERANCE = 0.1

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

      # For each recording that has too few spans of time to tell a change from chance, a text about it.
      def too_short
        of = %w[first second].each_with_index.filter_map do |which, side|
          "the #{which} recording has #{number(spans(side))} of time" if spans(side) < Change::LEAST
        end
        of.map { |text| "#{text}, and #{Change::LEAST} are needed to tell a change from chance" }
      end

      # Whether a difference is so large a part of the first recording's whole. share: as in Row.
      def enough?(share) = !share.nil? && share.abs >= @min

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

        without = @recordings.index { |one| wall_ns(one).zero? } if @per == "time"
        return unless without

        which = %w[first second][without]
        raise Tracing::Misused.new("the #{which} recording tells no wall time", "--per cpu")
      end

      def number(spans) = spans == 1 ? "1 span" : "#{spans} spans"
      def wall_ns(recording) = recording.metadata.fetch(:processes, []).sum { |one| one[:wall_ns].to_i }

      def index(side, kind) = @recordings[side].kinds.index { |one| one.name == kind }

      def factor(side, kind)
        @factors[[side, kind]] ||= begin
          recording = @recordings[side]
          whole = @per == "time" ? wall_ns(recording) / 1e9 : recording.total(index(side, kind))[1]
          whole.zero? ? 0.0 : 1.0 / whole
        end
      end

      def row(kind, sides, whole)
        before, after = sides.each_with_index.map { |one, side| (one&.weight || 0) * factor(side, kind) }
        function = (sides.last || sides.first).function
        share = whole.zero? ? nil : (after - before) / whole
        Row.new(name: function&.name, path: function&.path, defined: function&.defined, before: before,
                after: after, difference: after - before, share: share,
                changed: enough?(share) && changed?(kind, sides))
      end

      def changed?(kind, sides)
        values = sides.each_with_index.map { |one, side| values(one, side, kind) }
        values.all? { |one| one.size >= Change::LEAST } && Change.welch?(*values)
      end

      # The normalised weight of each span, as if the whole recording were like it. Shares are those of the
      # span, so that a load that goes up and down is no difference.
      def values(one, side, kind)
        weights = one ? one.spans : [0] * spans(side)
        parts = length(side) / of_a_span(side)
        return weights.map { |weight| weight * parts * factor(side, kind) } unless @per == "cpu"

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
          span = bucket / of_a_span(side)
          in_a_span = span < spans(side)
          wholes[span] += weight if in_a_span
          charged.functions(node).each do |function|
            one = found[[function&.name, function&.path]] ||= Side.new(function, 0, [0] * spans(side))
            one.weight += weight
            one.spans[span] += weight if in_a_span
          end
        end
        found
      end

      def each_weight(recording, index)
        recording.each_cell do |bucket, _, kind, node, _, weight, _|
          yield bucket, node, weight if kind == index
        end
      end

      # The length of a recording in buckets.
      def length(side) = @recordings[side].duration_ns.fdiv(@recordings[side].bucket_ns)

      # The number of buckets that the recording covers as a whole. A file of another tool has none.
      def buckets(side) = @recordings[side].foreign? ? 0 : (length(side) + TOLERANCE).floor

      # Spans have the same number of buckets, as many as possible. Buckets that are left over at the end
      # are in no span.
      def of_a_span(side) = [(buckets(side) / SPANS.to_f).ceil, 1].max
      def spans(side) = buckets(side) / of_a_span(side)
    end
  end
end
