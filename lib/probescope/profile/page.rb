# frozen_string_literal: true

require "json"
require "stringio"
require "zlib"

module Probescope
  module Profile
    # Writes a Recording as a page: page/page.gen.html, with the recording in it.
    #
    # A block of data is base64 of gzip of MAGIC, the length of the JSON (u32), the JSON, zeros up to a
    # multiple of 8, and columns of little-endian numbers, which the browser uses as they are. The JSON:
    #
    #   metadata     docs/schema/recording.json; empty for a file of another tool
    #   kinds        Kind#described of each kind
    #   strings      every name and path once; what refers to them has their index
    #   frames       [function, path, line, defined, flags]; flags: OWN, WHAT
    #   series       [pid, thread id, request]; request: -1 where it is nil
    #   begin_ms, duration_ns, bucket_ns  the time of day of bucket 0, and lengths
    #   columns      {name => {offset, type, length}}: nodes.parent and nodes.frame, and cells.bucket,
    #                series, kind, node, count, weight and looked. kind: index in kinds. offset: from the
    #                first column.
    #   diff         of a comparison: {by, per, kinds: {name => {factors: [before, after], changed:
    #                [[function, path], ...]}}}. Weights are multiplied by the factors.
    class Page
      TEMPLATE = File.expand_path("../../../page/page.gen.html", __dir__)
      DATA = "<!--DATA-->"
      MAGIC = "PSPAGE1\0".b.freeze
      OWN = 1
      WHAT = 2
      # {type => [its directive of pack, its size]}
      TYPES = {u8: ["C*", 1], u32: ["V*", 4], f64: ["E*", 8]}.freeze
      CELLS = {bucket: :u32, series: :u32, kind: :u8, node: :u32, count: :f64, weight: :f64,
               looked: :f64}.freeze

      # io: gets the page.
      def self.write(recording, io, **) = insert(io, "data" => new(recording).block)

      # The page of a comparison. diff: see above.
      def self.compare(before, after, io, diff:)
        insert(io, "before" => new(before).block, "data" => new(after, diff).block)
      end

      # blocks: {id of the element => text}
      def self.insert(io, blocks)
        head, tail = File.read(TEMPLATE, encoding: Encoding::UTF_8).split(DATA, 2)
        io.write(head)
        blocks.each do |id, text|
          io.write(%(<script type="application/octet-stream" id="#{id}">), text, "</script>\n")
        end
        io.write(tail)
      end
      private_class_method :insert

      def initialize(recording, diff = nil)
        @recording = recording
        @diff = diff
        @strings = {}
      end

      # The text of a block of data.
      def block
        json = JSON.generate(head)
        packed = Zlib::GzipWriter.wrap(StringIO.new("".b), 6) do |gzip|
          gzip.mtime = 0
          gzip.write(MAGIC, [json.bytesize].pack("V"), json, padding(MAGIC.bytesize + 4 + json.bytesize))
          columns.each { |_, type, values| gzip.write(bytes(type, values)) }
          gzip.finish
        end
        [packed.string].pack("m0")
      end

      private

      def head
        frames = @recording.frames.map { |frame| frame(frame) }
        series = @recording.series.map { |one| series(one) }
        {metadata: @recording.metadata, kinds: @recording.kinds.map(&:described), frames: frames,
         series: series, begin_ms: @recording.begin_ns / 1e6, duration_ns: @recording.duration_ns,
         bucket_ns: @recording.bucket_ns, columns: places, diff: @diff, strings: @strings.keys}.compact
      end

      # JSON is UTF-8, and a name may be anything.
      def valid(text) = text.dup.force_encoding(Encoding::UTF_8).scrub
      def string(text) = @strings[valid(text)] ||= @strings.size

      def frame(frame)
        flags = (frame.own ? OWN : 0) | (frame.what ? WHAT : 0)
        [string(frame.function), string(frame.path), frame.line, frame.defined, flags]
      end

      def series(one) = [one.pid, one.thread_id, one.request ? string(one.request) : -1]

      # [[name, type, values], ...]. Sorted cells make the page smaller: equal values are neighbours.
      def columns
        @columns ||= begin
          nodes = {"nodes.parent" => @recording.parents, "nodes.frame" => @recording.node_frames.map(&:to_i)}
          cells = @recording.enum_for(:each_cell).sort.transpose
          nodes.map { |name, values| [name, :u32, values] } +
            CELLS.each_with_index.map { |(name, type), i| ["cells.#{name}", type, cells[i] || []] }
        end
      end

      # {name => place}
      def places
        offset = 0
        columns.to_h do |name, type, values|
          place = {offset: offset, type: type, length: values.size}
          size = values.size * TYPES.fetch(type).last
          offset += size + padding(size).bytesize
          [name, place]
        end
      end

      def bytes(type, values)
        packed = values.pack(TYPES.fetch(type).first)
        packed << padding(packed.bytesize)
      end

      def padding(size) = "\0" * (-size % 8)
    end
  end
end
