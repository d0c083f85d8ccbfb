# frozen_string_literal: true

require_relative "call_paths"

module Probescope
  module Tracing
    # Charges the figures of call paths to functions or lines of the application: those of a path to
    # the innermost frame on it that is the application's. Without an application (own: nil) to the
    # innermost function that is no builtin, or where there is none to the innermost one.
    class ByOwn
      # What one function or line was charged with. frame: a Frame of it. weight, samples: of the paths
      # that were charged to it. total, total_samples: of all paths that it is on. lines: {its line =>
      # weight}. called: {[function, file, line of the definition] of what it called => weight}.
      # builtins: the same for those of them that are builtins and innermost.
      Sum = Struct.new(:frame, :weight, :samples, :total, :total_samples, :lines, :called, :builtins) do
        def self.of(frame) = new(frame, 0, 0, 0, 0, Hash.new(0), Hash.new(0), Hash.new(0))

        def charge(node, called)
          self.weight += node.weight
          self.samples += node.samples
          self.called[called] += node.weight if called
        end
      end

      # The sum of the paths without a frame of the application. `called` has the innermost functions.
      attr_reader :outside

      # The block returns what tells rows apart: a key for a Frame.
      def initialize(paths, own, &key)
        @own = own
        @key = key
        @sums = {}
        @outside = Sum.of(nil)
        paths.nodes.each { |node| add(node) if node.weight.positive? || node.samples.positive? }
      end

      # [Sum, ...]
      def sums = @sums.values

      private

      def add(node)
        at, called = charged(node)
        if at
          charge(at, called, node)
        else
          @outside.charge(node, name(innermost(node).frame))
        end
        totals(node)
      end

      def charge(at, called, node)
        sum = sum(at.frame)
        sum.charge(node, called && name(called.frame))
        sum.lines[at.frame.line] += node.weight
        sum.builtins[name(node.frame)] += node.weight if called.equal?(node) && node.frame.builtin?
      end

      # [Node that is charged or nil, Node that it called or nil]
      def charged(node)
        called = nil
        node.each_outwards do |one|
          return [one, called] if counts?(one.frame)

          called = one
        end
        [(node unless @own), nil]
      end

      def counts?(frame) = @own ? @own.own?(frame) : !frame.builtin?
      def innermost(node) = node.each_outwards.find { |one| !one.frame.builtin? } || node
      def name(frame) = [frame.function, frame.file, frame.defined]

      # A function that is several times on a path counts once.
      def totals(node)
        frames = node.each_outwards.map(&:frame)
        frames.select! { |frame| @own.own?(frame) } if @own
        frames.uniq { |frame| @key.call(frame) }.each do |frame|
          sum = sum(frame)
          sum.total += node.weight
          sum.total_samples += node.samples
        end
      end

      def sum(frame) = @sums[@key.call(frame)] ||= Sum.of(frame)
    end
  end
end
