# frozen_string_literal: true

require_relative "recording"

module Probescope
  module Profile
    # Collects the figures of processes while they are traced, in bounded memory, and makes a Recording
    # of them. Call paths arrive with the ids that processes give them, which are the same in each
    # process. A path's description may arrive after its figures, or not at all.
    #
    # When there are too many cells, buckets of time become twice as long, as often as needed. When one
    # bucket is left, the threads of a process are merged, and then small figures are charged to the
    # nearest caller that has figures of its own. No sum changes.
    class Recorder
      # So many figures, each of a path of its own, need 300 MB, and 120 MB more as a Recording.
      MOST_CELLS = 400_000
      MOST_NODES = 400_000
      MOST_TEXT = 64 << 20 # bytes of names
      # Of the bits in a cell's key some are left: for processes that begin later.
      MOST_SERIES = (1 << Recording::SERIES_BITS) - 4096
      MOST_BUCKETS = 1 << Recording::BUCKET_BITS
      # Frames of a path; a process cuts its stacks at 256.
      MOST_DEPTH = 300
      # ns
      BUCKET = 1_000_000_000
      # The most descriptions of each sort that are kept of processes that are not recorded.
      MOST_OF_OTHERS = 1 << 16
      # The part of their kind below which figures are charged to a caller.
      SMALL = 0.0001

      # Flags of a frame.
      OWN = 1
      WHAT = 2

      # Frames that stand for paths that are not known.
      LOST = "(name was lost)"
      MORE = "(more paths)"

      # kinds: [Kind]. The others: see above.
      def initialize(kinds, most_cells: MOST_CELLS, most_nodes: MOST_NODES, most_text: MOST_TEXT,
                     most_series: MOST_SERIES)
        @kinds = kinds
        @numbers = kinds.each_with_index.to_h { |kind, index| [kind.number, index] }
        @most_cells = most_cells
        @most_nodes = most_nodes
        @most_text = most_text
        @most_series = most_series
        @recording = Recording.new(kinds)
        @steps = {}
        @ids = {0 => 0} # id => number of the node
        @described = [nil] # [parent's id, function, line, defined, flags, number of the file]
        @paths = {} # number of the file => path
        @of_others = {path: {}, file: {}} # {id => description}, {number of the file => path}
        @requests = {} # number => "METHOD PATH"
        @names = {} # each name once
        @text = 0
        @dropped = 0
        @begin = nil # of the first bucket, on the processes' clock
        @width = 1 # seconds of a bucket
        @more = nil
        @last_bucket = 0
        @merged_threads = false
      end

      # What the description of a path says. Names are kept once.
      def path(id, parent, function, line, defined, flags, file)
        node = node(id)
        return if node.zero? || node == @more || @described[node]

        @described[node] = [parent, kept(function), line, defined, flags, file]
        node(parent)
      end

      def file(number, path) = name(@paths, number, path)

      # The same from a process that is not recorded. bpftrace prints a description a few times for all
      # processes, so the description of a path may come from such a process alone. What a recorded
      # process says comes first.
      def path_of_another(id, *description) = keep_of_others(:path, id, description)
      def file_of_another(number, path) = keep_of_others(:file, number, path)

      def request(number, text) = name(@requests, number, text)

      # Figures of the second of a process that began and ended at these times, in ns of the clock that
      # all processes have. figures: [kind's number, path's id, thread, request, count, weight, looked].
      # Figures of kinds that were not asked for are dropped.
      def second(pid, from, to, all)
        @begin ||= from
        passed = [((from + to) / 2) - @begin, 0].max
        widen while passed / bucket_ns >= MOST_BUCKETS
        bucket = passed / bucket_ns
        @last_bucket = [@last_bucket, bucket].max
        all.each do |kind, id, thread, request, *figures|
          index = @numbers[kind] or next
          series = series(pid, thread, request)
          series ? @recording.add(bucket, series, index, node(id), *figures) : @dropped += 1
        end
        loop { break unless @recording.size > @most_cells && shorten }
      end

      # How the recording was shortened, one text for each kind of step.
      def truncated = @steps.values

      # The number of cells.
      def size = @recording.size

      # The begin of the first bucket, on the processes' clock; nil before anything has arrived.
      attr_reader :begin

      def bucket_ns = BUCKET * @width

      # The number of figures of processes for which there was no room.
      attr_reader :dropped

      # The number of paths, also of callers, whose description did not arrive.
      def lost_paths
        adopt
        used.count { |node| @described[node].nil? }
      end

      # A Recording of what has arrived of these processes. metadata: docs/schema/recording.json.
      def recording(metadata, pids)
        adopt
        found = Recording.new(@kinds, metadata)
        nodes, depths = {0 => 0}, [0]
        @recording.each_cell do |bucket, series, kind, node, *figures|
          of = @recording.series[series]
          next unless pids.include?(of.pid)

          number = found.series_number(of.pid, of.thread_id, of.request && @requests.fetch(of.request, LOST))
          found.add(bucket, number, kind, placed(found, node, nodes, depths), *figures)
        end
        found
      end

      private

      def keep_of_others(sort, number, described)
        known = @of_others[sort]
        known[number] ||= described if known.size < MOST_OF_OTHERS
      end

      # Takes over the descriptions that only other processes have given.
      def adopt
        others = @of_others[:path]
        return if others.empty?

        ids = @ids.invert
        waiting = used.select { |node| @described[node].nil? }.map { |node| ids[node] }
        while (id = waiting.pop)
          description = others.delete(id) or next
          path(id, *description)
          parent = description.first
          waiting << parent if @ids[parent] && @described[@ids[parent]].nil?
        end
      end

      # Counts a new text towards the bound.
      def kept(text)
        @names[text] ||= begin
          @text += text.bytesize
          text
        end
      end

      def name(names, number, text)
        names[number] ||= kept(text) if names.size < @most_nodes && @text < @most_text
      end

      # The number of the series, nil where there is no room. A process may start a thread for each
      # request, and routes and processes may be without number.
      def series(pid, thread, request)
        merge_threads if !@merged_threads && full?
        one = [pid, @merged_threads ? 0 : thread, request.zero? || full? ? nil : request]
        return @recording.series_number(*one) unless full? && !@recording.series?(*one)

        @steps[:processes] = "there is no room for the figures of more processes"
        nil
      end

      def full? = @recording.series.size >= @most_series

      # The number of the node for an id. When there are too many, all new ones are one node.
      def node(id)
        @ids[id] || begin
          return more if @described.size >= @most_nodes || @text >= @most_text

          @described << nil
          @ids[id] = @described.size - 1
        end
      end

      def more
        @more ||= begin
          @steps[:paths] = "paths that were new after the first #{@described.size} are in #{MORE}"
          @described << [0, MORE, 0, 0, WHAT, 0]
          @described.size - 1
        end
      end

      # The nodes that have figures, and their callers.
      def used
        found = {0 => true}
        @recording.each_cell { |_, _, _, node, *| chain(node, found).each_key { |one| found[one] = true } }
        found.keys.drop(1)
      end

      # A node and its callers, without those that are known: {number => true}. A chain of callers that
      # ends in itself, which only a wrong description can make, ends there.
      def chain(node, known)
        found = {}
        until known.key?(node) || found.key?(node)
          found[node] = true
          node = caller_of(node)
        end
        found
      end

      # The number in the new recording of a node, to which its callers are added. nodes: {number =>
      # number in the new recording}. depths: of the nodes there.
      def placed(found, node, nodes, depths)
        chain(node, nodes).keys.reverse_each do |one|
          parent = nodes.fetch(caller_of(one), 0)
          nodes[one] = depths[parent] < MOST_DEPTH ? below(found, parent, @described[one]) : parent
          depths[nodes[one]] ||= depths[parent] + 1
        end
        nodes.fetch(node)
      end

      def below(found, parent, described) = found.child(parent, found.frame(frame(described)))

      def frame(described)
        return Frame.new(LOST, "", 0, 0, false, true) unless described

        _, function, line, defined, flags, file = described
        path = @paths[file] || @of_others[:file].fetch(file, "")
        Frame.new(function, path, line, defined, flags.anybits?(OWN), flags.anybits?(WHAT))
      end

      # Returns whether a further step may help.
      def shorten
        return merge_small if @last_bucket.zero? && @merged_threads

        @last_bucket.positive? ? widen : merge_threads
        true
      end

      def widen
        @width *= 2
        @last_bucket /= 2
        @steps[:time] = "seconds are not told apart, but spans of #{@width} s"
        @recording.merge { |bucket, series, _, node| [bucket / 2, series, node] }
      end

      def merge_threads
        @merged_threads = true
        @steps[:threads] = "threads are not told apart"
        @recording.merge_series { |of| [of.pid, 0, of.request] }
      end

      # Charges the figures below a limit to the caller. The limit grows until there is room. When all
      # figures are below it, they are charged to no function.
      def merge_small
        @steps[:small] = "small figures are charged to their callers"
        limit = SMALL
        while @recording.size > @most_cells * 3 / 4 && limit < 2
          above = limit < 1 ? method(:caller_of) : proc { 0 }
          least = @kinds.each_index.map { |kind| @recording.total(kind)[1] * limit }
          @recording.merge do |bucket, series, kind, node, weight|
            [bucket, series, weight > least[kind] ? node : above[node]]
          end
          limit *= 2
        end
        limit < 2
      end

      def caller_of(node) = @described[node] ? @ids.fetch(@described[node].first, 0) : 0
    end
  end
end
