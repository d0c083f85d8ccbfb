# frozen_string_literal: true

require "json"
require_relative "../version"
require_relative "recording"

module Probescope
  module Profile
    # Writes a Recording for speedscope: a profile for each kind and thread, in the order of time.
    # https://github.com/jlfwong/speedscope/blob/main/src/lib/file-format-spec.ts
    class Speedscope
      SCHEMA = "https://www.speedscope.app/file-format-schema.json"
      UNITS = {"nanoseconds" => "nanoseconds", "bytes" => "bytes"}.freeze
      # Threads of a kind with profiles of their own. The others are in one profile.
      MOST_THREADS = 200
      # Frames of all stacks. Beyond that, stacks of a thread are merged over time.
      MOST_FRAMES = 20_000_000

      def self.write(recording, io, **) = new(recording).write(io)

      def initialize(recording, most_frames: MOST_FRAMES)
        @recording = recording
        @most_frames = most_frames
      end

      def write(io)
        head = {"$schema": SCHEMA, exporter: "probescope@#{VERSION}", name: title, activeProfileIndex: 0,
                shared: {frames: frames}}
        io.write(json(head).chop, %(,"profiles":[))
        profiles.each_with_index do |(name, unit, cells), i|
          io.write(",") if i.positive?
          profile(io, name, unit, cells)
        end
        io.write("]}\n")
      end

      private

      def json(value) = JSON.generate(value)

      def title
        pids = @recording.metadata[:processes].to_a.map { |one| one[:pid] }
        pids.empty? ? "a profile" : "process#{"es" unless pids.one?} #{pids.join(", ")}"
      end

      # A stack without a frame, which another tool may write, has the last frame.
      def frames
        @recording.frames.map do |frame|
          {name: frame.function, file: frame.path, line: frame.line}.reject do |_, value|
            ["", 0].include?(value)
          end
        end + [{name: "(no stack)"}]
      end

      # [[name, unit, [[bucket, node, weight], ...]], ...]
      def profiles
        merged = merged?
        @recording.kinds.each_with_index.flat_map do |kind, index|
          threads(index).map do |thread, cells|
            name = "#{kind.name}: #{thread}#{" (merged over time)" if merged}"
            [name, UNITS.fetch(kind.unit, "none"), in_order(cells, merged)]
          end
        end
      end

      # {name => cells}, the thread with the largest weight first.
      def threads(kind)
        found = Hash.new { |all, thread| all[thread] = [] }
        @recording.each_cell do |bucket, series, of, node, _, weight, _|
          if of == kind && weight.positive?
            found[@recording.series[series].first(2)] << [bucket, node,
                                                          weight]
          end
        end
        sorted = found.sort_by { |thread, cells| [-cells.sum(&:last), thread] }
        named = sorted.first(MOST_THREADS).to_h.transform_keys { |thread| name(*thread) }
        others = sorted.drop(MOST_THREADS).flat_map(&:last)
        others.empty? ? named : named.merge("other threads" => others)
      end

      def name(pid, thread_id)
        return "all threads" if pid.zero?

        thread = @recording.thread_name(Series.new(pid, thread_id, nil)) if thread_id.positive?
        ["process #{pid}", ("thread #{thread}" if thread)].compact.join(", ")
      end

      # Whether the stacks would have too many frames.
      def merged?
        frames = 0
        @recording.each_cell { |_, _, _, node, *| frames += depths[node] }
        frames > @most_frames
      end

      def depths
        @depths ||= @recording.parents.each_with_index.with_object([0]) do |(parent, node), all|
          all << (all[parent] + 1) if node.positive?
        end
      end

      def in_order(cells, merged)
        cells = cells.map { |_, node, weight| [0, node, weight] } if merged
        sums = cells.each_with_object(Hash.new(0)) do |(bucket, node, weight), all|
          all[[bucket, node]] += weight
        end
        sums.sort.map { |(bucket, node), weight| [bucket, node, weight] }
      end

      def profile(io, name, unit, cells)
        io.write(%({"type":"sampled","name":#{json(name)},"unit":#{json(unit)},"startValue":0,) +
                 %("endValue":#{cells.sum(&:last)},"samples":[))
        cells.each_with_index { |(_, node), i| io.write(i.zero? ? stack(node) : ",#{stack(node)}") }
        io.write(%(],"weights":#{json(cells.map(&:last))}}))
      end

      # The numbers of the frames, the outermost one first.
      def stack(node)
        return "[#{@recording.frames.size}]" if node.zero?

        found = []
        until node.zero?
          found.unshift(@recording.node_frames[node])
          node = @recording.parents[node]
        end
        "[#{found.join(",")}]"
      end
    end
  end
end
