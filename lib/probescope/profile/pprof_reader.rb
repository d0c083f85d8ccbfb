# frozen_string_literal: true

require "json"
require "zlib"
require_relative "../tracing/bounds"
require_relative "../tracing/error"
require_relative "metadata"
require_relative "pprof_writer"
require_relative "protobuf"
require_relative "recording"

module Probescope
  module Profile
    # Reads a pprof file, gzipped or not: a recording, or the file of another tool, whose sample types
    # become kinds. The file is foreign data, so its size is bounded (Tracing::Bounds).
    class PprofReader
      Bounds = Tracing::Bounds
      GZIP = "\x1f\x8b".b
      NEXT_STEP = "a .pb.gz file of `probescope record`, or a pprof file of another tool"

      # A line of a location, and a location, whose innermost line is the first one.
      Line = Struct.new(:function, :number)
      Location = Struct.new(:mapping, :lines)
      # Figures and labels as they are in the file.
      Sample = Struct.new(:locations, :figures, :labels)

      # Returns a Recording. Raises Tracing::Misused.
      def self.read(path)
        new(path).read
      rescue Protobuf::Malformed, Zlib::Error => e
        raise Tracing::Misused.new("#{path} is no recording: #{e.message}", NEXT_STEP)
      rescue SystemCallError => e
        raise Tracing::Misused.new("cannot read #{path}: #{e.message.sub(/ @ .*/m, "")}", NEXT_STEP)
      end

      def initialize(path)
        @path = path
      end

      def read
        parse(content)
        metadata = told
        @recording = Recording.new(kinds_of(metadata), metadata)
        @recording.begin_ns = @numbers.fetch(PprofWriter::TIME_NANOS, 0)
        @recording.duration_ns = @numbers.fetch(PprofWriter::DURATION_NANOS, 0)
        samples
        @recording
      end

      private

      def malformed(text) = raise(Protobuf::Malformed, text)

      def content
        File.open(@path, "rb") do |file|
          head = file.read(2).to_s
          check_form(head)
          file.rewind
          head == GZIP ? inflated(file) : bounded(file.read(Bounds::RECORDING_BYTES + 1))
        end
      end

      # The formats that only other programs read.
      def check_form(head)
        return unless head.start_with?("<", "{") || @path.end_with?(".collapsed")

        kind = head.start_with?("<") ? "page" : "file of that format"
        raise Tracing::Misused.new("a #{kind} cannot be read back: #{@path}", "convert the .pb.gz")
      end

      # The whole file is never in memory compressed and unpacked, and a small file that unpacks to an
      # endless one ends at the bound.
      def inflated(file)
        inflate = Zlib::Inflate.new(Zlib::MAX_WBITS + 16)
        bytes = "".b
        until inflate.finished?
          part = file.read(1 << 16) or malformed("it is cut off")
          inflate.inflate(part) { |piece| bounded(bytes << piece) }
        end
        bytes
      ensure
        inflate&.close
      end

      def bounded(bytes)
        return bytes.to_s if bytes.to_s.bytesize <= Bounds::RECORDING_BYTES

        malformed("it has more than #{Bounds::RECORDING_BYTES >> 20} MiB")
      end

      # Reads the fields of the profile. Unknown fields are ignored.
      def parse(bytes)
        @types, @samples, @texts, @comments = [], [], [], []
        @mappings, @locations, @functions, @numbers = {}, {}, {}, {}
        Protobuf::Reader.new(bytes).each do |field, value|
          case field
          when PprofWriter::SAMPLE_TYPE then @types << pair(value)
          when PprofWriter::SAMPLE then @samples << sample(value)
          when PprofWriter::MAPPING then mapping(value)
          when PprofWriter::LOCATION then location(value)
          when PprofWriter::FUNCTION then function(value)
          when PprofWriter::TEXT then @texts << text_of(value)
          when PprofWriter::COMMENT then @comments.concat(Protobuf::Reader.numbers(value))
          else @numbers[field] = value if value.is_a?(Integer)
          end
        end
        malformed("it has no sample type") if @types.empty?
      end

      def text_of(value)
        malformed("a text that is a number") unless value.is_a?(String)
        value.force_encoding(Encoding::UTF_8).scrub
      end

      # The fields of a message, the last value of each.
      def fields(bytes)
        found = {}
        Protobuf::Reader.new(message(bytes)).each { |field, value| found[field] = value }
        found
      end

      def message(value) = value.is_a?(String) ? value : malformed("a number in place of a message")
      def integer(value) = value.is_a?(Integer) ? value : malformed("bytes in place of a number")

      def pair(bytes) = fields(bytes).values_at(1, 2).map { |value| integer(value || 0) }

      def mapping(bytes)
        found = fields(bytes)
        @mappings[integer(found[1] || 0)] = integer(found[5] || 0)
      end

      def function(bytes)
        found = fields(bytes)
        @functions[integer(found[1] || 0)] = found.values_at(2, 4, 5).map { |value| integer(value || 0) }
      end

      def location(bytes)
        id = mapping = 0
        lines = []
        Protobuf::Reader.new(message(bytes)).each do |field, value|
          case field
          when 1 then id = integer(value)
          when 2 then mapping = integer(value)
          when 4
            found = fields(value)
            lines << Line.new(integer(found[1] || 0), Protobuf::Reader.signed(integer(found[2] || 0)))
          end
        end
        @locations[id] = Location.new(mapping, lines)
      end

      def sample(bytes)
        found = Sample.new("".b, [], [])
        Protobuf::Reader.new(message(bytes)).each do |field, value|
          case field
          when 1 then found.locations << (value.is_a?(Integer) ? Protobuf.varint(value) : value)
          when 2 then found.figures.concat(Protobuf::Reader.numbers(value))
          when 3 then found.labels << message(value)
          end
        end
        found
      end

      def text(index) = @texts[index] || malformed("a text that is not there")

      # The metadata of a recording; empty for the file of another tool.
      def told
        mark, json = @comments.first(2).map { |index| text(index) }
        version = mark.to_s[/\A#{PprofWriter::MARK} (\d+)\z/o, 1]
        return {} unless version

        if version.to_i > PprofWriter::VERSION
          raise Tracing::Misused.new("#{@path} was made by a newer probescope", "update the command")
        end

        found = JSON.parse(json.to_s, symbolize_names: true)
        malformed("its metadata are no object") unless found.is_a?(Hash)
        JSON.generate(found) # raises for half of a surrogate pair
        Metadata.wrong(found)&.then { |name| malformed("its metadata have no valid #{name}") }
        found
      rescue JSON::JSONError, EncodingError
        malformed("its metadata are no JSON")
      end

      # The kinds that the file has: as its metadata say, otherwise one for each sample type.
      def kinds_of(metadata)
        types = @types.map { |pair| pair.map { |index| text(index) } }
        kinds = metadata.fetch(:kinds, []).map do |one|
          Kind.new(**one.slice(:name, :counts, :weighs, :looked))
        end
        kinds = types.map { |type| Kind.new(name: type.first, weighs: type) } if metadata.empty?
        malformed("it has no kind") if kinds.empty?
        malformed("it has too many kinds") if kinds.size >= 1 << Recording::KIND_BITS
        @places = [*kinds, REQUESTS].to_h do |kind|
          [kind.name, [kind.counts, kind.weighs, kind.looked].map { |type| type && types.index(type) }]
        end
        kinds
      end

      def samples
        @names = @recording.kinds.each_with_index.to_h { |kind, index| [kind.name, index] }
        @nodes = {"" => 0}
        @labels = {}
        @samples.each do |sample|
          sample.figures.map! { |value| Protobuf::Reader.signed(value) }
          @recording.foreign? ? foreign(sample) : recorded(sample)
        end
      end

      def foreign(sample)
        series = @recording.series_number(0, 0, nil)
        sample.figures.first(@recording.kinds.size).each_with_index do |value, kind|
          @recording.add(0, series, kind, node(sample.locations), 0, value, 0) unless value.zero?
        end
      end

      def recorded(sample)
        labels = labels(sample)
        places = @places[labels["kind"]] or return # of a later version
        count, weight, looked = places.map { |index| index && sample.figures[index] }
        return request(labels, count, weight) if labels["kind"] == REQUESTS.name

        bucket = number(labels, "at") / @recording.bucket_ns
        malformed("it is too long") if bucket >= 1 << Recording::BUCKET_BITS
        thread = labels["thread"].to_s.to_i
        series = @recording.series_number(number(labels, "pid"), thread, labels["request"]&.to_s)
        malformed("it has too many threads") if series >= 1 << Recording::SERIES_BITS
        @recording.add(bucket, series, @names.fetch(labels["kind"]), node(sample.locations),
                       count || 0, weight || 0, looked || count || 0)
      end

      def request(labels, count, weight)
        method, route = labels["request"].to_s.split(" ", 2)
        method, route = nil, method unless route
        @recording.requests << Request.new(number(labels, "pid"), method, route, labels["status"].to_i,
                                           count || 0, weight || 0)
      end

      def number(labels, key)
        value = labels.fetch(key, 0)
        value.is_a?(Integer) ? value : malformed("a label #{key} that is a text")
      end

      # {key => text or number}
      def labels(sample)
        sample.labels.to_h do |bytes|
          @labels[bytes] ||= begin
            found = fields(bytes)
            index = integer(found[2] || 0)
            [text(integer(found[1] || 0)), index.positive? ? text(index) : integer(found[3] || 0)]
          end
        end
      end

      # The node for packed locations.
      def node(packed)
        @nodes[packed] ||= begin
          ids = Protobuf::Reader.numbers(packed)
          malformed("a stack of more than #{Bounds::RECORDING_DEPTH} frames") if ids.size > Bounds::RECORDING_DEPTH
          node = ids.reverse_each.inject(0) do |caller, id|
            frames(id).reverse_each.inject(caller) { |parent, frame| @recording.child(parent, frame) }
          end
          malformed("it has too many call paths") if node >= 1 << Recording::NODE_BITS
          node
        end
      end

      # The numbers of a location's frames, the innermost one first.
      def frames(id)
        @frames ||= {}
        @frames[id] ||= begin
          location = @locations[id] or malformed("a location that is not there")
          own, what = whose(location)
          found = location.lines.map { |line| @recording.frame(frame(line, own, what)) }
          found.empty? ? [@recording.frame(Frame.new("(unknown)", "", 0, 0, false, false))] : found
        end
      end

      # [own, what]
      def whose(location)
        return [false, false] if @recording.foreign?

        name = text(@mappings.fetch(location.mapping, 0))
        [name == PprofWriter::MAPPINGS[0], name == PprofWriter::MAPPINGS[2]]
      end

      def frame(line, own, what)
        name, path, defined = @functions.fetch(line.function) { malformed("a function that is not there") }
        Frame.new(text(name), text(path), line.number, Protobuf::Reader.signed(defined), own, what)
      end
    end
  end
end
