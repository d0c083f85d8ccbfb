# frozen_string_literal: true

require_relative "clock"
require_relative "figure"
require_relative "text"

module Probescope
  module Tracing
    # Renders an Answer as the JSON that docs/schema describes.
    class JsonRenderer
      def initialize(answer)
        @answer = answer
        @result = answer.result
      end

      def text
        Text.answer(@answer.command, {pids: @result.counted, **interval, **sample_rate,
                                      **@answer.report.more,
                                      processes: @result.processes.map { |one| covered(one) }, rows: rows,
                                      rows_left_out: @answer.shown.below,
                                      not_covered: @answer.report.not_covered,
                                      lost: @result.lost, others: @result.others, warnings: @answer.warnings})
      end

      private

      def rows
        shown = @answer.shown
        [*shown.rows, *shown.rest].map { |row| row.slice(*(row.keys & @answer.definition.fields)) }
      end

      def sample_rate = @answer.definition.samples ? {sample_rate: @result.sample_rate} : {}

      # cpu_share: of one processor. looking_share: the part of the CPU time that the hooks took;
      # nil where the library does not report it.
      def interval
        {begin: Clock.iso(@result.from), end: Clock.iso(@result.to), seconds: @result.seconds,
         cpu_share: Figure.ratio(@result.cpu_ns, @result.seconds * 1e9), looking_share: @result.looking_share}
      end

      def covered(one)
        {pid: one.pid, begin: Clock.iso(one.begin), end: Clock.iso(one.end),
         seconds: one.wall_ns && (one.wall_ns / 1e9).round(3),
         cpu_share: one.wall_ns && Figure.ratio(one.cpu_ns, one.wall_ns),
         looking_share: one.looking_ns && Figure.ratio(one.looking_ns, one.cpu_ns),
         waited_ns: one.waited_ns, left_out: one.left_out,
         taken_out: one.taken_out.map { |probe, time| {probe: probe, at: Clock.iso(time)} }}
      end
    end
  end
end
