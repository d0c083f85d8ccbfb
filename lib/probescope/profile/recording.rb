# frozen_string_literal: true

require_relative "../tracing/own"
require_relative "kind"

module Probescope
  module Profile
    # A line of a function. own: whether it is the application's. what: whether it stands for something
    # else than a function, such as "(garbage collection)" or the class of an object. line is the line
    # that runs or calls, defined the line of the definition; 0 where they are not known.
    Frame = Struct.new(:function, :path, :line, :defined, :own, :what)

    # Where stacks were read. thread_id is 0 and request is nil where the recording does not split by
    # them. request: "METHOD PATH".
    Series = Struct.new(:pid, :thread_id, :request)

    # The figures of a call path in one bucket of time. looked: the number of stacks that were read for
    # them.
    Cell = Struct.new(:bucket, :series, :kind, :node, :count, :weight, :looked) # rubocop:disable Lint/StructNewOverride

    # Call paths with weights. A call path is a node of a tree: the frame that runs, and the node of its
    # caller. Node 0 is the root and has no frame; a parent's number is below its children's.
    class Recording
      # Bits of a cell's key. The whole key is an Integer of Ruby that needs no object.
      NODE_BITS = 22
      KIND_BITS = 4
      SERIES_BITS = 17
      BUCKET_BITS = 17

      # kinds: [Kind]. frames: [Frame]. parents, node_frames: for each node, the number of its parent and
      # of its frame. series: [Series]. metadata: docs/schema/recording.json, with symbols for keys.
      attr_reader :kinds, :frames, :parents, :node_frames, :series, :metadata
      # begin_ns: the time of day at which bucket 0 begins.
      attr_accessor :begin_ns, :duration_ns, :bucket_ns

      # metadata: empty for a file of another tool.
      def initialize(kinds, metadata = {})
        @kinds = kinds
        @metadata = metadata
        @begin_ns = @duration_ns = 0
        @bucket_ns = metadata.fetch(:bucket_ns, 1_000_000_000)
        @frames = []
        @parents = [0]
        @node_frames = [nil]
        @series = []
        @cells = {} # key => index in the three lists
        @counts = []
        @weights = []
        @looked = []
        @frame_numbers = {}
        @node_numbers = {}
        @series_numbers = {}
      end

      # The number of the frame.
      def frame(frame)
        @frame_numbers[frame] ||= (@frames << frame).size - 1
      end

      # The number of the node for a frame that a node called.
      def child(parent, frame_number)
        @node_numbers[(parent << 32) | frame_number] ||= begin
          @node_frames << frame_number
          (@parents << parent).size - 1
        end
      end

      # The number of the series.
      def series_number(pid, thread_id, request)
        @series_numbers[[pid, thread_id,
                         request]] ||= (@series << Series.new(pid, thread_id, request)).size - 1
      end

      def series?(pid, thread_id, request) = @series_numbers.key?([pid, thread_id, request])

      # kind: index in #kinds.
      def add(bucket, series, kind, node, count, weight, looked)
        key = (((((bucket << SERIES_BITS) | series) << KIND_BITS) | kind) << NODE_BITS) | node
        index = @cells[key]
        if index
          @counts[index] += count
          @weights[index] += weight
          @looked[index] += looked
        else
          @cells[key] = @counts.size
          @counts << count
          @weights << weight
          @looked << looked
        end
      end

      # Whether another tool has made it.
      def foreign? = @metadata.empty?

      # The number of cells.
      def size = @cells.size

      # Yields bucket, number of the series, index of the kind, number of the node, count, weight and
      # looked of each cell.
      def each_cell
        @cells.each do |key, index|
          yield(*fields(key), @counts[index], @weights[index], @looked[index])
        end
      end

      # {number of the node => its cells' keys, in the order of time}. #cell has the cell of a key.
      def keys_by_node = @cells.keys.sort!.group_by { |key| key & ((1 << NODE_BITS) - 1) }

      def cell(key)
        index = @cells.fetch(key)
        Cell.new(*fields(key), @counts[index], @weights[index], @looked[index])
      end

      # [count, weight, looked] of all cells of a kind.
      def total(kind)
        sums = [0, 0, 0]
        each_cell do |_, _, of, _, *figures|
          figures.each_with_index { |figure, i| sums[i] += figure } if of == kind
        end
        sums
      end

      # The frames of a node, the innermost one first.
      def stack(node)
        found = []
        until node.zero?
          found << @frames[@node_frames[node]]
          node = @parents[node]
        end
        found
      end

      # Chooses which frames are the application's (Tracing::Own), of those that the processes or the last
      # choice count as such. asked: globs of --own. Where no file matches them, the choice stays. Returns
      # the Own.
      def choose_own(asked, entry = [])
        weights = Array.new(@parents.size, 0)
        each_cell { |_, _, kind, node, _, weight, _| weights[node] += weight if kind.zero? }
        paths = (1...@parents.size).map do |node|
          parent = @parents[node]
          [@frames[@node_frames[node]], (parent - 1 if parent.positive?), weights[node]]
        end
        own = Tracing::Own.choose(asked, paths, entry)
        return own if own.matches_nothing?

        @frames = @frames.map { |frame| Frame.new(*frame).tap { |one| one.own = own.own?(frame) } }
        @metadata = @metadata.merge(own: chosen(own, asked)) unless foreign?
        own
      end

      # The number and the name of a series' thread: "4712 puma srv tp 001".
      def thread_name(series)
        process = metadata[:processes].to_a.find { |one| one[:pid] == series.pid }
        [series.thread_id, process&.dig(:threads, series.thread_id.to_s.to_sym)].compact.join(" ")
      end

      # Replaces every cell by the one with the bucket, series and node that the block returns. The block
      # receives bucket, series, kind, node and weight. Cells that become equal are added up, so no sum
      # changes.
      def merge
        cells, counts, weights, looked = @cells, @counts, @weights, @looked
        @cells, @counts, @weights, @looked = {}, [], [], []
        cells.each do |key, index|
          old = fields(key)
          bucket, series, node = yield(*old, weights[index])
          add(bucket, series, old[2], node, counts[index], weights[index], looked[index])
        end
      end

      # Replaces every series by the one with the pid, thread and request that the block returns.
      def merge_series(&replaced)
        old, @series, @series_numbers = @series, [], {}
        numbers = old.map { |one| series_number(*replaced.call(one)) }
        merge { |bucket, series, _, node| [bucket, numbers[series], node] }
      end

      private

      # What the metadata say of a choice. Files are taken away from the last choice, too.
      def chosen(own, asked)
        last = own.by == :process ? @metadata.fetch(:own, own.to_h) : own.to_h
        last.merge(globs: last[:globs] | asked.grep(/\A!/))
      end

      # Bucket, series, kind and node of a key.
      def fields(key)
        node = key & ((1 << NODE_BITS) - 1)
        key >>= NODE_BITS
        kind = key & ((1 << KIND_BITS) - 1)
        key >>= KIND_BITS
        [key >> SERIES_BITS, key & ((1 << SERIES_BITS) - 1), kind, node]
      end
    end
  end
end
