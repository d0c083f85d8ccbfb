# frozen_string_literal: true

require_relative "../tracing/figure"
require_relative "recording"

module Probescope
  module Profile
    # The rows of a recording's tables.
    #
    #   by own    what libraries cost is charged to the nearest function of the application that called
    #             them. What has no such caller is in one row, `outside`.
    #   by self   to the function that ran
    #   by total  the function and everything that it calls; recursion counts once
    class Summary
      BY = %w[own self total].freeze
      # Called functions that a row lists.
      CALLED = 10

      # A function: what recordings of two versions have in common.
      Function = Struct.new(:name, :path, :defined)
      # The figures of a function. lines: {line => weight}. called: {Function => weight}, and the
      # weight of the function's own code under nil.
      Row = Struct.new(:function, :own, :count, :weight, :total, :lines, :called) # rubocop:disable Lint/StructNewOverride

      # kind: index in Recording#kinds. by: one of BY. The block, if any, returns whether the cells of
      # a bucket, a Series count.
      def initialize(recording, kind, by, &counts)
        @recording = recording
        @kind = kind
        @by = by
        @counts = counts
        @functions = {}
      end

      # Sums of the kind.
      def count = sums && @count
      def weight = sums && @weight
      def looked = sums && @looked

      # Whether anything is the application's.
      def self.own?(recording) = recording.frames.any?(&:own)

      # The functions to which the figures of a node are charged: by total, each function of its stack.
      # nil is what is outside.
      def functions(node)
        (@charged ||= {})[node] ||= begin
          frames = @recording.stack(node)
          case @by
          when "own" then [frames.find(&:own)]
          when "self" then [frames.first]
          else frames.empty? ? [nil] : frames
          end.map { |frame| frame && function(frame) }.uniq
        end
      end

      # [Row, ...], the largest one first. The row of what is outside has no function.
      def rows
        @rows ||= begin
          found = {}
          sums.each { |node, (count, weight)| charge(found, node, count, weight) }
          found.values.sort_by { |row| [-largest(row), -row.count, *row.function.to_a.map(&:to_s)] }
        end
      end

      # The rows for JSON and for tables.
      def shown
        rows.map do |row|
          {function: row.function&.name, file: known(row.function&.path), line: known(row.function&.defined),
           outside: row.function.nil?, self_share: share(row.weight), total_share: share(row.total),
           count: row.count, weight: row.weight, unit: @recording.kinds[@kind].unit,
           line_at: line_at(row), called: called(row)}
        end
      end

      private

      def largest(row) = @by == "total" ? row.total : row.weight
      def known(value) = ["", 0].include?(value) ? nil : value
      def share(weight) = Tracing::Figure.ratio(weight, self.weight)

      # {node => [count, weight]} of all cells of the kind.
      def sums
        @sums ||= begin
          @count = @weight = @looked = 0
          found = Hash.new { |all, node| all[node] = [0, 0] }
          @recording.each_cell do |bucket, series, kind, node, count, weight, looked|
            next unless kind == @kind && (@counts.nil? || @counts[bucket, @recording.series[series]])

            found[node][0] += count
            found[node][1] += weight
            @count += count
            @weight += weight
            @looked += looked
          end
          found
        end
      end

      def charge(found, node, count, weight)
        frames = @recording.stack(node)
        at = @by == "own" ? frames.index(&:own) : (0 if frames.any?)
        row = row(found, at && frames[at])
        row.count += count
        row.weight += weight
        if at
          row.lines[frames[at].line] += weight
          row.called[at.zero? ? nil : function(frames[at - 1])] += weight if @by == "own"
        elsif frames.any?
          row.called[function(frames.first)] += weight
        end
        totals(found, at ? frames : [nil], weight)
      end

      # Adds the weight to every function of the stack, once: by own, to those of the application.
      def totals(found, frames, weight)
        seen = {}
        frames.each do |frame|
          next if frame && !frame.own && @by == "own"

          one = row(found, frame)
          one.total += weight unless seen[one.function]
          seen[one.function] = true
        end
      end

      def row(found, frame)
        function = frame && function(frame)
        found[function] ||= Row.new(function, frame&.own, 0, 0, 0, Hash.new(0), Hash.new(0))
      end

      def function(frame)
        @functions[frame] ||= Function.new(frame.function, frame.path, frame.defined)
      end

      # The line with most of the weight.
      def line_at(row)
        line = row.lines.max_by { |number, weight| [weight, -number] }&.first
        row.function && line&.positive? ? {file: known(row.function.path), line: line} : nil
      end

      # What the function called, or what is outside; the function's own code is not in it.
      def called(row)
        found = row.called.reject { |function, _| function.nil? }
        largest = found.sort_by { |function, weight| [-weight, *function.to_a.map(&:to_s)] }.first(CALLED)
        largest.map do |function, weight|
          {function: function.name, file: known(function.path), line: known(function.defined),
           share: share(weight)}
        end
      end
    end
  end
end
