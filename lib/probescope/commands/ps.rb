# frozen_string_literal: true

require_relative "base"
require_relative "../tracing/client"
require_relative "../tracing/privilege"

module Probescope
  module Commands
    # The processes that have loaded the library.
    class Ps < Base
      USAGE = "ps [options]"
      ABOUT = <<~TEXT
        Lists the processes that can be traced.

          NAME     the name for `--comm`: the first word of the title that a server gives itself
                   ("puma: cluster worker 0"), or the kernel's name of the process
          LIBRARY  version of probescope in the process; "gone" when the file was deleted or replaced on
                   disk and the process still uses the old one, with which it can be traced
          ENABLED  probes that a tracer listens to right now
      TEXT
      EXAMPLES = <<~TEXT
        probescope ps
        probescope ps --json | jq '.pids[]'
      TEXT
      # The most set-aside processes that are named in warnings.
      SET_ASIDE = 20

      private

      def options(parser)
        parser.on("--json", "one JSON object instead of the table") { @json = true }
      end

      def call
        rows, unreadable, set_aside = list
        unseen = "#{unreadable} processes of other users were not looked at; root sees them"
        @warnings = unreadable.positive? ? [unseen] : []
        @warnings += newer(rows)
        @warnings += set_aside.first(SET_ASIDE)
        @warnings << "#{set_aside.size - SET_ASIDE} more were set aside" if set_aside.size > SET_ASIDE
        @json ? print_json(rows) : print_table(rows)
        @warnings.each { |text| warn "probescope: #{Tracing::Text.clean(text)}" }
        0
      end

      # This command can list processes with a newer library, but not show what that library adds.
      def newer(rows)
        later = rows.group_by { |row| row[:library] }.select do |version, _|
          Gem::Version.correct?(version) && Gem::Version.new(version) > Gem::Version.new(VERSION)
        end
        later.map do |version, rows|
          whose = rows.one? ? "process #{rows.first[:pid]} has" : "#{rows.size} processes have"
          "#{whose} probescope #{version}, which is newer than this command (#{VERSION}): " \
            "update the command to see everything that it reports"
        end
      end

      # Without privilege, lists the processes that this user may read.
      def list
        rows, _, set_aside = Tracing::Client.open(Tracing::Privilege.new.prefix, &:list)
        [rows, 0, set_aside]
      rescue Tracing::Error
        Tracing::Client.open([], &:list)
      end

      def print_json(rows)
        puts Tracing::Text.answer(name, {pids: rows.map { |row| row[:pid] }, rows: rows, warnings: @warnings})
      end

      def print_table(rows)
        if rows.empty?
          puts "no process has probescope loaded; `probescope run -- COMMAND` starts one"
        else
          require_relative "../tracing/list_renderer"
          puts Tracing::ListRenderer.text(name, :rows, rows)
        end
      end
    end
  end
end
