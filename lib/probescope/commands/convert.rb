# frozen_string_literal: true

require_relative "base"
require_relative "own_option"
require_relative "../profile/destination"
require_relative "../profile/pprof_reader"
require_relative "../profile/tables"

module Probescope
  module Commands
    # Shows a recording, or writes it in another format.
    class Convert < Base
      include OwnOption

      USAGE = "convert FILE.pb.gz [-o FILE] [options]"
      ABOUT = <<~TEXT.freeze
        Shows the tables of a recording (`probescope record`), or writes it in the format that the ending
        of -o names: #{Profile::Destination::ENDINGS}. Also reads pprof files of other tools.
        Needs no privilege.

          SELF    by own: the function's share with the libraries that it calls; otherwise its share
          TOTAL   with everything that it calls; recursion counts once
          LINE    by own: the line of the function with most of its figures
          CALLED  by own: the function of a library that the line called, with its share
      TEXT
      EXAMPLES = <<~TEXT
        probescope convert shop.pb.gz                            the tables
        probescope convert shop.pb.gz --by self --top 0          which functions themselves, all of them
        probescope convert shop.pb.gz -o shop.html               a page with a flame graph
        probescope convert shop.pb.gz -o shop.speedscope.json    for https://www.speedscope.app
        probescope convert shop.pb.gz -o shop.collapsed          for flamegraph.pl
        probescope convert shop.pb.gz --json | jq '.kinds[0].rows[0]'
      TEXT
      # Rows of each table.
      TOP = 10

      private

      def options(parser)
        parser.on("-o", "--output FILE", "writes FILE; its ending is the format") { |path| @output = path }
        parser.on("--force", "replaces FILE") { @force = true }
        parser.on("--kind KIND", "for .collapsed, which has one kind: the first one by default") do |text|
          @kind = text
        end
        parser.on("--by WHAT", Profile::Summary::BY,
                  "own: charge libraries to the application's function that called them, the default " \
                  "where the application is told from its libraries; self or total") { |by| @by = by }
        own_option(parser)
        parser.on("--top N", Integer, "rows of each table, #{TOP} by default; 0 for all") do |top|
          raise CLI::Usage.new("--top takes 0 or more", "--top 20") if top.negative?

          @top = top
        end
        parser.on("--json", "one JSON object with every row instead of the tables") { @json = true }
      end

      def arguments(rest)
        raise CLI::Usage.new("which file?", "probescope #{USAGE}") if rest.empty?

        @input = rest.shift
        super
      end

      def call
        check_options
        destination = Profile::Destination.new(@output, force: @force) if @output
        recording = Profile::PprofReader.read(@input)
        kind = kind_of(recording)
        choose_own(recording) { |text| warn "probescope: #{Tracing::Text.clean(text)}" } if own_globs.any?
        return show(recording) unless destination

        bytes = destination.write(recording, kind: kind)
        puts "#{destination.path}, #{Tracing::Figure.bytes(bytes)}"
        0
      end

      def check_options
        tables = {"--json" => @json, "--by" => @by, "--top" => @top}.compact.keys
        if @output && tables.any?
          raise CLI::Usage.new("#{tables.first} is for the tables, and -o writes a file",
                               "probescope #{name} without -o")
        end
        return unless @kind && !@output.to_s.end_with?(".collapsed")

        raise CLI::Usage.new("--kind is for .collapsed, which has one kind", "-o FILE.collapsed")
      end

      # The index of the kind.
      def kind_of(recording)
        names = recording.kinds.map(&:name)
        return 0 unless @kind

        names.index(@kind) or
          raise CLI::Usage.new("#{@input} has no kind #{@kind}", "one of #{names.join(", ")}")
      end

      def show(recording)
        tables = Profile::Tables.new(recording, @by || (Profile::Summary.own?(recording) ? "own" : "self"),
                                     top: @top || TOP)
        if @json
          puts Tracing::Text.answer(name,
                                    tables.fields.merge(warnings: recording.metadata.fetch(:warnings, [])))
        else
          puts tables.text
        end
        0
      end
    end
  end
end
