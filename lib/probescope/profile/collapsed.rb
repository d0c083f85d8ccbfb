# frozen_string_literal: true

require_relative "recording"

module Probescope
  module Profile
    # Writes one kind as collapsed stacks, a line for each path of each thread:
    # "process 4711;thread 4712 puma;main;Shop#pay 1200", in the kind's unit.
    # https://github.com/brendangregg/FlameGraph#2-fold-stacks
    class Collapsed
      # Characters that end a frame or a line.
      UNSAFE = /[;[:cntrl:]]/

      # kind: index in Recording#kinds.
      def self.write(recording, io, kind:)
        heads = Hash.new { |all, series| all[series] = head(recording, recording.series[series]) }
        sums(recording, kind).sort.each do |(node, series), weight|
          names = recording.stack(node).reverse.map { |frame| frame.function.gsub(UNSAFE, "_") }
          io.write("#{[*heads[series], *names].join(";")} #{weight}\n")
        end
      end

      # {[number of the node, number of the series] => weight}
      def self.sums(recording, kind)
        found = Hash.new(0)
        recording.each_cell do |_, series, of, node, _, weight, _|
          found[[node, series]] += weight if of == kind
        end
        found
      end
      private_class_method :sums

      # The process, the thread and the request as outermost frames.
      def self.head(recording, series)
        return [] if series.pid.zero?

        ["process #{series.pid}", ("thread #{recording.thread_name(series)}" if series.thread_id.positive?),
         series.request].compact.map { |name| name.gsub(UNSAFE, "_") }
      end
      private_class_method :head
    end
  end
end
