# frozen_string_literal: true

require "time"
require_relative "../tracing/clock"
require_relative "../tracing/figure"
require_relative "../tracing/list_renderer"
require_relative "../tracing/lost"
require_relative "../tracing/table_renderer"
require_relative "../tracing/text"
require_relative "summary"

module Probescope
  module Profile
    # The tables of a recording, and its JSON.
    class Tables
      # Functions that the line about what is outside names.
      OUTSIDE = 3

      # The losses of a recording. A later version may have others.
      LOST = %i[events rows samples paths].freeze

      # by: one of Summary::BY. top: rows of each table; 0 for all.
      def initialize(recording, by, top:)
        @recording = recording
        @by = by
        @top = top
      end

      # What has to be known of a recording before its figures are believed: how it was shortened, what
      # was lost, and its warnings.
      def self.notes(recording)
        told = recording.metadata
        lost = told.fetch(:lost, {}).select { |_, number| number.positive? }
        texts = lost.map do |what, number|
          next "#{number} lost: #{what}" unless LOST.include?(what)

          format(Tracing::Lost::WARNINGS.fetch(what), number: number)
        end
        [*told[:truncated].to_a.map { |text| "shortened: #{text}" }, *texts, *told[:warnings],
         *told[:not_covered]].uniq.map { |text| Tracing::Text.clean(text) }
      end

      # The text of all tables.
      def text = [*head, *@recording.kinds.each_index.flat_map { |kind| ["", *table(kind)] }].join("\n")

      # The fields of the command's JSON.
      def fields
        told = @recording.metadata
        {pids: pids, begin: told[:begin], end: told[:end], seconds: told[:seconds],
         bucket_ns: @recording.bucket_ns,
         processes: told.fetch(:processes, []).map { |one| one.slice(*PROCESS) },
         by: @by, own: told[:own], kinds: kinds, lost: told[:lost],
         truncated: told.fetch(:truncated, []), not_covered: told.fetch(:not_covered, [])}
      end

      # The fields of a process, which may have more in the metadata of a later version.
      PROCESS = %i[pid runtime version begin end seconds cpu_share looking_share left_out].freeze

      private

      def clean(text) = Tracing::Text.clean(text)
      def pids = @recording.metadata.fetch(:processes, []).map { |one| one[:pid] }

      def kinds
        @recording.kinds.each_with_index.map do |kind, index|
          summary = summary(index)
          {kind: kind.name, unit: kind.unit, count: summary.count, weight: summary.weight,
           looked: summary.looked, rows: summary.shown.map { |row| row.except(:unit) }}
        end
      end

      def summary(kind) = (@summaries ||= {})[kind] ||= Summary.new(@recording, kind, @by)

      def head
        told = @recording.metadata
        return ["a file of another tool: without processes, times and losses"] if told.empty?

        from, to = told.values_at(:begin, :end).map { |text| text && Time.iso8601(text) }
        ["recording of #{Tracing::TableRenderer.processes(pids)}, #{format("%.1f", told[:seconds])} s" \
         "#{"; interrupted" if told[:interrupted]}" \
         "#{"; #{pids.one? ? "the" : "a"} process ended" if told[:ended]}",
         "#{Tracing::TableRenderer.span(from, to)}#{looking(told)}", *Tables.notes(@recording)]
      end

      def looking(told)
        share = told[:looking_share]
        "; looking took #{Tracing::Figure.share(share)} of the CPU time" if share
      end

      def table(kind)
        summary = summary(kind)
        rows = summary.shown
        outside, shown = rows.partition { |row| row[:outside] }
        shown.reject! { |row| row[:count].zero? && row[:weight].zero? } if @by == "own"
        cut = @top.positive? ? shown.first(@top) : shown
        more = shown.size - cut.size
        [title(kind, summary), *(rendered(cut) if cut.any?), *outside.map { |row| outside_of(row) },
         *("#{Tracing::Figure.count(more)} more rows; --top 0 shows all" if more.positive?)]
      end

      def title(kind, summary)
        of = @recording.kinds[kind]
        figures = [of.counts && "#{Tracing::Figure.count(summary.count)} #{clean(of.counts.first)}",
                   Tracing::Cells.weight({weight: summary.weight, unit: of.unit}, :weight)]
        "#{clean(of.name)} by #{@by}: #{figures.compact.join(", ")}"
      end

      def rendered(rows) = Tracing::ListRenderer.text("convert", @by.to_sym, rows)

      def outside_of(row)
        parts = row[:called].first(OUTSIDE).map do |one|
          "#{clean(one[:function])} #{Tracing::Figure.share(one[:share])}"
        end
        "outside of the application: #{Tracing::Figure.share(row[:self_share])} (#{parts.join(", ")})"
      end
    end
  end
end
