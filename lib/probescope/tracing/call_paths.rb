# frozen_string_literal: true

require_relative "own"
require_relative "result"
require_relative "text"

module Probescope
  module Tracing
    # The call paths of a trace, from the maps of a program such as hot_own.bt.
    class CallPaths
      # function, file and path are "" where they are not known, and line and defined are 0. file is
      # shortened, path is not. own: whether the process counts the file as the application's. what:
      # whether it is no function.
      Frame = Struct.new(:function, :file, :path, :line, :defined, :own, :what) do
        # A function of the VM itself, mostly in C.
        def builtin? = path.start_with?("<cfunc>", "<internal:")
      end
      # parent: the Node of the frame that called this one, or nil. weight and samples: of the stacks that
      # end here.
      Node = Struct.new(:frame, :parent, :number, :weight, :samples) do
        # This node and the nodes around it, the innermost one first.
        def each_outwards
          return to_enum(:each_outwards) unless block_given?

          node = self
          while node
            yield node
            node = node.parent
          end
        end
      end
      OWN = 1
      WHAT = 2
      # The frame of a path whose names are missing.
      UNNAMED = Frame.new("", "", "", 0, 0, false, true).freeze

      # Node s, callers before the functions that they call.
      attr_reader :nodes

      def initialize(result)
        @result = result
        @nodes = []
        @known = {}
        @rows = numbered("frame")
        @functions, @files, @paths = %w[name file full_path].map { |map| numbered(map) }
        @frames = {}
        {"weight" => :weight, "count" => :samples}.each do |map, figure|
          result.map(map).each { |key, value| add(key, figure, value) }
        end
      end

      # The weight and the number of all stacks.
      def weight = @nodes.sum(&:weight)

      # For Own.choose.
      def to_a = @nodes.map { |node| [node.frame, node.parent&.number, node.weight] }

      private

      # {number => the other values} of a map whose values begin with a number.
      def numbered(map)
        @result.values(map).to_h do |number, *rest|
          [Result.number(number), rest.map { |value| Text.without_mark(value) }]
        end
      end

      # No path has the number 0.
      def add(key, figure, value)
        node = node(Result.numbers(key).last) or return
        node[figure] += Result.number(value)
      end

      # A chain of callers that ends in itself, which only a wrong description can make, ends there.
      def node(id)
        chain = {}
        until id.zero? || @known.key?(id) || chain.key?(id)
          parent, *chain[id] = @rows[id]&.map { |value| Result.number(value) }
          id = parent.to_i
        end
        chain.reverse_each.inject(@known[id]) do |parent, (one, rest)|
          frame = rest.any? ? frame(one, *rest) : UNNAMED
          @known[one] = Node.new(frame, parent, @nodes.size, 0, 0).tap { |node| @nodes << node }
        end
      end

      def frame(id, line, defined, flags, file)
        texts = [@functions[id], @files[file], @paths[file]].map { |one| one ? one.first.to_s : "" }
        frame = Frame.new(*texts, line, defined, (flags & OWN).positive?, (flags & WHAT).positive?)
        @frames[frame] ||= frame
      end
    end
  end
end
