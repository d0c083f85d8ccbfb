# frozen_string_literal: true

require "json"
require "zlib"
require_relative "protobuf"
require_relative "recording"

module Probescope
  module Profile
    # Writes a Recording in pprof's format, gzipped:
    # https://github.com/google/pprof/blob/main/proto/profile.proto. It is the one format that
    # PprofReader reads back. docs/reference/recordings.md describes what is added to it.
    class PprofWriter
      # The first comment of a file; the second one has the metadata.
      MARK = "probescope recording"
      VERSION = 1
      # ns between two samples of a thread, at 99 Hz.
      PERIOD = 10_101_010
      # The mapping of a location says whose code it is.
      MAPPINGS = ["(application)", "(libraries)", "(what)"].freeze
      APPLICATION, LIBRARIES, WHAT = 1, 2, 3
      # Bytes that are gzipped at once.
      CHUNK = 1 << 16

      # Fields of the messages.
      SAMPLE_TYPE, SAMPLE, MAPPING, LOCATION, FUNCTION, TEXT = 1, 2, 3, 4, 5, 6
      TIME_NANOS, DURATION_NANOS, PERIOD_TYPE, PERIOD_FIELD, COMMENT, DEFAULT_TYPE = 9, 10, 11, 12, 13, 14

      def self.write(recording, io, **) = new(recording).write(io)

      def initialize(recording)
        @recording = recording
        @texts = {"" => 0}
      end

      def write(io)
        gzip = Zlib::GzipWriter.new(io, 6)
        gzip.mtime = 0
        @buffer = "".b
        message { |bytes| put(gzip, bytes) }
        gzip.write(@buffer)
      ensure
        gzip&.finish
      end

      private

      def put(gzip, bytes)
        @buffer << bytes
        return if @buffer.bytesize < CHUNK

        gzip.write(@buffer)
        @buffer.clear
      end

      # Yields the bytes of the profile in pieces. The texts come last, when all are known.
      def message(&block)
        types.each { |type| yield field(SAMPLE_TYPE, value_type(*type)) }
        MAPPINGS.each.with_index(1) do |name, id|
          yield field(MAPPING, Protobuf.number(1, id) + Protobuf.number(5, text(name)))
        end
        functions_and_locations(&block)
        samples(&block)
        rest(&block)
        @texts.each_key { |one| yield field(TEXT, one) }
      end

      def field(number, bytes) = Protobuf.bytes(number, bytes)
      def text(value) = @texts[value] ||= @texts.size

      def value_type(type, unit) = Protobuf.number(1, text(type)) + Protobuf.number(2, text(unit))

      # [type, unit] of each value of a sample.
      def types = @types ||= kinds.flat_map(&:types)

      def kinds = @recording.kinds

      # The index of a kind's first value.
      def offset(kind) = kinds.take(kind).sum { |one| one.types.size }

      # A frame has a location of its own.
      def functions_and_locations
        functions = {}
        @recording.frames.each.with_index(1) do |frame, id|
          key = [frame.function, frame.path, frame.defined]
          unless functions.key?(key)
            functions[key] = functions.size + 1
            yield field(FUNCTION, function(functions[key], frame))
          end
          line = Protobuf.number(1, functions[key]) + Protobuf.number(2, frame.line)
          mapping = if frame.what
                      WHAT
                    else
                      frame.own ? APPLICATION : LIBRARIES
                    end
          yield field(LOCATION, Protobuf.number(1, id) + Protobuf.number(2, mapping) + field(4, line))
        end
      end

      def function(id, frame)
        Protobuf.number(1, id) + Protobuf.number(2, text(frame.function)) +
          Protobuf.number(4, text(frame.path)) + Protobuf.number(5, frame.defined)
      end

      def samples
        labels = Hash.new { |all, series| all[series] = labels_of(@recording.series[series]) }
        names = kinds.map { |kind| label("kind", kind.name) }
        moments = Hash.new { |all, bucket| all[bucket] = moment(bucket) }
        keys = @recording.keys_by_node
        each_node do |node, locations|
          keys.fetch(node, []).each do |key|
            cell = @recording.cell(key)
            figures = values(cell.kind, cell.count, cell.weight, cell.looked)
            yield field(SAMPLE, field(1, locations) + figures + labels[cell.series] +
                                names[cell.kind] + moments[cell.bucket])
          end
        end
      end

      # Yields each node with its packed locations, the innermost one first. Nodes are visited depth
      # first, and the locations of a node are kept as long as functions that it calls are to come.
      def each_node
        children = Array.new(@recording.parents.size)
        @recording.parents.each_with_index do |parent, node|
          (children[parent] ||= []) << node if node.positive?
        end
        todo = [[0, ""]]
        while (node, callers = todo.pop)
          locations = node.zero? ? "" : Protobuf.varint(@recording.node_frames[node] + 1) + callers
          yield node, locations
          children[node]&.reverse_each { |child| todo << [child, locations] }
        end
      end

      # The values of a sample, with zeros for the other kinds. kind: its index in #kinds.
      def values(kind, count, weight, looked)
        one = kinds[kind]
        mine = {one.counts => count, one.weighs => weight, one.looked => looked}.values_at(*one.types)
        before = offset(kind)
        after = types.size - before - mine.size
        field(2, [*[0] * before, *mine, *[0] * after].map { |value| Protobuf.varint(value) }.join)
      end

      def labels_of(series)
        number_label("pid", series.pid) +
          (series.thread_id.positive? ? label("thread", @recording.thread_name(series)) : "") +
          (series.request ? label("request", series.request) : "")
      end

      def label(key, value) = field(3, Protobuf.number(1, text(key)) + Protobuf.number(2, text(value)))

      def number_label(key, value, unit = nil)
        return "" if value.zero?

        field(3, Protobuf.number(1, text(key)) + Protobuf.number(3, value) +
                 (unit ? Protobuf.number(4, text(unit)) : ""))
      end

      # A bucket's begin since the begin of the recording.
      def moment(bucket) = number_label("at", bucket * @recording.bucket_ns, "nanoseconds")

      def rest
        yield Protobuf.number(TIME_NANOS, @recording.begin_ns)
        yield Protobuf.number(DURATION_NANOS, @recording.duration_ns)
        if @recording.kinds.any? { |kind| kind.name == "cpu" }
          yield field(PERIOD_TYPE, value_type("cpu", "nanoseconds")) + Protobuf.number(PERIOD_FIELD, PERIOD)
        end
        comments = ["#{MARK} #{VERSION}", JSON.generate(@recording.metadata)]
        comments.each { |comment| yield Protobuf.number(COMMENT, text(comment)) } unless @recording.foreign?
        yield Protobuf.number(DEFAULT_TYPE, text(@recording.kinds.first.weighs.first))
      end
    end
  end
end
