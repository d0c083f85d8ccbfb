# frozen_string_literal: true

require_relative "base"
require_relative "own_option"
require_relative "../profile/destination"
require_relative "../profile/diff"
require_relative "../profile/pprof_reader"
require_relative "../profile/tables"
require_relative "../tracing/list_renderer"
require_relative "../tracing/table_renderer"
require_relative "../tracing/text"

module Probescope
  module Commands
    # The functions whose figures differ between two recordings.
    class Diff < Base
      include OwnOption

      USAGE = "diff BEFORE.pb.gz AFTER.pb.gz [-o FILE.html] [options]"
      ABOUT = <<~TEXT
        Which functions cost more or less than before? Compares two recordings of `probescope record`.
        Shows the functions that differ by more than chance: the figures are divided into up to 20 spans of
        time, and a change has to be much larger than the differences between the spans of a recording. At
        least 5 spans are needed: 5 s of a recording that was not shortened. Needs no privilege.

          CHANGE  the difference, as a share of the whole of BEFORE
          BEFORE  by own: the function with the libraries that it calls; otherwise the function alone
      TEXT
      EXAMPLES = <<~TEXT
        probescope diff before.pb.gz after.pb.gz
        probescope diff before.pb.gz after.pb.gz -o changes.html
        probescope diff before.pb.gz after.pb.gz --per cpu      shares, where the load was another one
        probescope diff before.pb.gz after.pb.gz --json | jq '.kinds[0].rows[] | select(.changed)'
      TEXT
      # The least change that is shown, in percent of the whole.
      MIN = 1.0

      def initialize
        super
        @per = "time"
        @min = MIN
      end

      private

      def options(parser)
        parser.on("--by WHAT", Profile::Summary::BY,
                  "own: charge libraries to the application's function that called them, the default " \
                  "where the application is told from its libraries; self or total") { |by| @by = by }
        own_option(parser)
        parser.on("--per WHAT", Profile::Diff::PER,
                  "time (default): figures in each second of a process; cpu: shares of the " \
                  "whole") { |per| @per = per }
        parser.on("--min PERCENT",
                  "the least change, #{MIN.to_i} by default, in percent of the whole") do |text|
          @min = percentage(text)
        end
        parser.on("-o", "--output FILE", "writes FILE.html, a page with a red and blue flame graph") do |path|
          @output = path
        end
        parser.on("--force", "replaces FILE") { @force = true }
        parser.on("--json", "one JSON object with every row instead of the tables") { @json = true }
      end

      def arguments(rest)
        raise CLI::Usage.new("which two files?", "probescope #{USAGE}") if rest.size < 2

        @inputs = rest.shift(2)
        super
      end

      def percentage(text)
        share = Float(text.delete_suffix("%"), exception: false)
        return share if share&.between?(0, 100)

        raise CLI::Usage.new("--min takes 0 to 100 percent, and not #{text.inspect}", "--min 5")
      end

      def call
        check_options
        page = {".html" => Profile::Page}
        destination = Profile::Destination.new(@output, force: @force, formats: page) if @output
        recordings = @inputs.map { |path| Profile::PprofReader.read(path) }
        choose(recordings) if own_globs.any?
        by = @by || (recordings.all? { |one| Profile::Summary.own?(one) } ? "own" : "self")
        diff = Profile::Diff.new(*recordings, by: by, per: @per, min: @min / 100)
        @warnings = warnings(diff, recordings)
        @warnings.each { |text| warn "probescope: #{text}" }
        return write(destination, diff, recordings) if destination

        puts @json ? json(diff, recordings) : text(diff, recordings)
        0
      end

      def check_options
        return unless @output && @json

        raise CLI::Usage.new("--json is for the tables, and -o writes a file",
                             "probescope #{name} without -o")
      end

      # What has to be known of the comparison before its figures are believed.
      def warnings(diff, recordings)
        notes = recordings.zip(%w[before after]).flat_map do |recording, which|
          Profile::Tables.notes(recording).map { |text| "#{which}: #{text}" }
        end
        [*diff.too_short, *notes, *(other_own(recordings) if diff.by == "own")]
      end

      # The files that count as the application's, where the recordings do not have the same ones.
      def other_own(recordings)
        own = recordings.map { |one| one.metadata[:own]&.values_at(:by, :globs) }
        return if own.uniq.one?

        texts = own.map { |by, globs| by ? Tracing::Text.clean([by, *globs].join(" ")) : "not known" }
        "what counts as the application's differs: #{texts.first} before, #{texts.last} after; " \
          "--own chooses the same for both"
      end

      def write(destination, diff, recordings)
        bytes = destination.save { |io| Profile::Page.compare(*recordings, io, diff: of_the_page(diff)) }
        puts "#{destination.path}, #{Tracing::Figure.bytes(bytes)}"
        0
      end

      # What the page shows of the comparison.
      def of_the_page(diff)
        kinds = diff.kinds.to_h do |kind|
          changed = diff.rows(kind).select(&:changed).map { |row| [row.name, row.path] }
          [kind, {factors: diff.factors(kind), changed: changed}]
        end
        {by: diff.by, per: diff.per, kinds: kinds}
      end

      def choose(recordings)
        recordings.each do |recording|
          choose_own(recording) { |text| warn "probescope: #{Tracing::Text.clean(text)}" }
        end
      end

      def json(diff, recordings)
        kinds = diff.kinds.map { |kind| kind(diff, kind) }
        before, after = recordings.map { |one| side(one) }
        Tracing::Text.answer(name, {pids: before[:pids] | after[:pids], before: before, after: after,
                                    by: diff.by, per: diff.per, kinds: kinds,
                                    warnings: @warnings})
      end

      def pids(recording) = recording.metadata.fetch(:processes, []).map { |one| one[:pid] }

      def side(recording)
        told = recording.metadata
        {pids: pids(recording), begin: told[:begin], end: told[:end], seconds: told[:seconds]}
      end

      def kind(diff, kind)
        before, after = diff.wholes(kind)
        rows = diff.rows(kind).map { |row| fields(diff, kind, row) }
        {kind: kind, unit: diff.unit(kind), before: before.round(6), after: after.round(6), rows: rows}
      end

      def fields(diff, kind, row)
        figures = {before: row.before, after: row.after, difference: row.difference, share: row.share}
                  .transform_values { |figure| figure&.round(6) }
        {function: row.name, file: known(row.path), line: known(row.defined), outside: row.name.nil?,
         **figures, changed: row.changed, unit: unit(diff, kind)}
      end

      def unit(diff, kind) = diff.per == "cpu" ? "share" : diff.unit(kind)
      def known(value) = ["", 0].include?(value) ? nil : value

      def text(diff, recordings)
        recordings.zip(%w[before after]).map { |one, which| head(one, which) }
                  .concat(diff.kinds.flat_map { |kind| ["", *table(diff, kind)] }).join("\n")
      end

      def head(recording, which)
        told = recording.metadata
        return "#{which}: a file of another tool" if told.empty?

        seconds = format("%.1f", told[:seconds])
        "#{which}: #{Tracing::TableRenderer.processes(pids(recording))}, #{seconds} s, " \
          "from #{Tracing::Clock.of_day(Time.iso8601(told[:begin]))}"
      end

      OUTSIDE = "(outside of the application)"
      PER = {"time" => "in each second of a process", "cpu" => "as shares of the whole"}.freeze

      def table(diff, kind)
        rows = diff.rows(kind).select(&:changed).map { |row| fields(diff, kind, row) }
        rows.each { |row| row[:function] ||= OUTSIDE }
        before, after = diff.wholes(kind).map do |whole|
          Tracing::Cells.normalised({whole: whole, unit: unit(diff, kind)}, :whole)
        end
        title = "#{Tracing::Text.clean(kind)} by #{diff.by}, #{PER.fetch(diff.per)}"
        ["#{title}: #{before} before, #{after} after",
         rows.empty? ? "  #{none(diff, kind)}" : rendered(rows)]
      end

      # A test that finds no change does not prove that there is none.
      def none(diff, kind)
        return "changes cannot be told from chance" unless diff.too_short.empty?

        largest = diff.rows(kind).first
        return "no function changed by more than chance" unless largest && diff.enough?(largest.share)

        row = fields(diff, kind, largest)
        before, after = %i[before after].map { |side| Tracing::Cells.normalised(row, side) }
        "no change can be told from chance; the largest difference is that of " \
          "#{Tracing::Text.clean(row[:function] || OUTSIDE)}: #{before} before, #{after} after. " \
          "Record for longer"
      end

      def rendered(rows) = Tracing::ListRenderer.text(name, :rows, rows)
    end
  end
end
