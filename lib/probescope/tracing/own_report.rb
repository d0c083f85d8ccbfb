# frozen_string_literal: true

require_relative "by_own"
require_relative "figure"
require_relative "own"
require_relative "report"

module Probescope
  module Tracing
    # The rows of a trace of call paths. What libraries cost counts for the code of the application
    # that called them. Where nothing is known to be the application's, everything counts for itself.
    # A subclass defines key(frame), which tells rows apart, and fields(sum).
    class OwnReport < Report
      # How many functions are named of what is outside of the application.
      NAMED_OUTSIDE = 3
      NOT_KNOWN = "by self: nothing is known to be the application's; --own GLOB names its files, such as " \
                  "--own '*/site-packages/shop/*'"

      # own: an Own.
      def initialize(result, definition, own)
        super(result, definition)
        @own = own
      end

      def rows
        found = by.sums.reject { |sum| sum.total_samples.zero? }.map { |sum| row(sum) }
        sorted(found, :self, :total)
      end

      # The row of what is outside of the application, which is in JSON only. The shares of all rows and of
      # this one are the whole.
      def rest
        return [] unless outside?

        share = ratio(by.outside.weight, whole)
        [{function: nil, file: nil, line: nil, outside: true, self_share: share, total_share: share,
          samples: by.outside.samples, builtins: [], called: called(by.outside.called)}]
      end

      def columns
        own.known? ? super.reject { |column| column.key == :builtins } : super
      end

      def above = own.known? ? own.text : NOT_KNOWN
      def more = {by: own.known? ? "own" : "self", own: own.to_h}
      def share(row) = row[:total_share] || row[:self_share]

      # With --by-pid, each process has rows of its own, and a line of its own.
      def below(shown)
        lines = shown.reports.filter_map do |report|
          of = "process #{report.result.counted.first}, " unless report.equal?(self)
          report.outside&.then { |text| "#{of}#{text}" }
        end
        lines.join("\n") if lines.any?
      end

      # The text about what is outside of the application, or nil.
      def outside
        return unless outside?

        named = called(by.outside.called).first(NAMED_OUTSIDE).map do |one|
          "#{one[:function] || UNKNOWN} #{Figure.share(one[:share])}"
        end
        "outside of the application: #{Figure.share(ratio(by.outside.weight, whole))} (#{named.join(", ")})"
      end

      private

      attr_reader :own

      def paths = @paths ||= CallPaths.new(result)
      def by = @by ||= ByOwn.new(paths, (own if own.known?)) { |frame| key(frame) }
      def whole = @whole ||= paths.weight
      def outside? = own.known? && by.outside.samples.positive?

      def row(sum)
        {function: known(sum.frame.function), file: known(sum.frame.file), **fields(sum),
         self: sum.weight, total: sum.total, outside: false, **shares(sum),
         called: own.known? ? called(sum.called) : []}
      end

      def shares(sum)
        {self_share: ratio(sum.weight, whole), total_share: ratio(sum.total, whole)}
      end

      # {[function, file, line] => weight}, as a list
      def called(weights)
        weights.sort_by { |name, weight| [-weight, name.map(&:to_s)] }.map do |(function, file, line), weight|
          {function: known(function), file: known(file), line: known(line), share: ratio(weight, whole)}
        end
      end
    end
  end
end
