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
    # become kinds. The file is foreign data, so what is kept of it is bounded (Tracing::Bounds).
    class PprofReader
      Bounds = Tracing::Bounds
      GZIP = "\x1f\x8b".b
      NEXT_STEP = "a .pb.gz file of `probescope record`, or a pprof file of another tool"

      # A line of a location, and a location, whose innermost line is the first one.
      Line = Struct.new(:function, :number)
      Location = Struct.new(:mapping, :lines)
      # locations: packed. labels: {key => text or number}.
      Sample = Struct.new(:locations, :figures, :labels)
      # The largest number of a field in the messages.
      KNOWN = 7
      # Bytes of the largest number in the file.
      NUMBER_BYTES = 10
      # Bytes of a file that are read at once.
      PART = 1 << 16

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
        @bytes = content
        parse
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
          head == GZIP ? inflated(file) : plain(file)
        end
      end

      # The formats that only other programs read.
      def check_form(head)
        return unless head.start_with?("<", "{") || @path.end_with?(".collapsed")

        kind = head.start_with?("<") ? "page" : "file of that format"
        raise Tracing::Misused.new("a #{kind} cannot be read back: #{@path}", "convert the .pb.gz")
      end

      def plain(file)
        bytes = "".b
        while (part = file.read(PART))
          bounded(bytes << part)
        end
        bytes
      end

      # The whole file is never in memory compressed and unpacked, and a small file that unpacks to an
      # endless one ends at the bound. A file may have several members, one behind the other.
      def inflated(file)
        bytes = "".b
        part = file.read(PART)
        while part
          rest = member(file, part, bytes)
          part = rest.empty? ? file.read(PART) : rest
        end
        bytes
      end

      # Unpacks a member that begins with a part of the file. Returns what of the file was read behind it.
      def member(file, part, bytes)
        inflate = Zlib::Inflate.new(Zlib::MAX_WBITS + 16)
        given = 0
        loop do
          given += part.bytesize
          inflate.inflate(part) { |piece| bounded(bytes << piece) }
          return part.byteslice(part.bytesize - given + inflate.total_in..) if inflate.finished?

          part = file.read(PART) || malformed("it is cut off")
        end
      ensure
        inflate&.close
      end

      def bounded(bytes)
        return if bytes.bytesize <= Bounds::RECORDING_BYTES

        malformed("it has more than #{Bounds::RECORDING_BYTES >> 20} MiB")
      end

      # Reads the fields of the profile but samples, whose texts may come later. Unknown fields are
      # ignored.
      def parse
        @parts = 0
        @types, @texts, @comments = [], [], []
        @mappings, @locations, @functions, @numbers = {}, {}, {}, {}
        Protobuf::Reader.new(@bytes).each do |field, value|
          part
          case field
          when PprofWriter::SAMPLE_TYPE then @types << pair(value)
          when PprofWriter::MAPPING then mapping(value)
          when PprofWriter::LOCATION then location(value)
          when PprofWriter::FUNCTION then function(value)
          when PprofWriter::TEXT then @texts << text_of(value)
          when PprofWriter::COMMENT then comment(value)
          when PprofWriter::TIME_NANOS, PprofWriter::DURATION_NANOS then @numbers[field] = integer(value)
          end
        end
        malformed("it has no sample type") if @types.empty?
      end

      # Counts a part that is kept in memory.
      def part
        @parts += 1
        malformed("it has more than #{Bounds::RECORDING_PARTS} parts") if @parts > Bounds::RECORDING_PARTS
      end

      def text_of(value)
        malformed("a text that is a number") unless value.is_a?(String)
        value.force_encoding(Encoding::UTF_8).scrub
      end

      # The known fields of a message, the last value of each.
      def fields(bytes)
        found = {}
        Protobuf::Reader.new(message(bytes)).each { |field, value| found[field] = value if field <= KNOWN }
        found
      end

      def message(value) = value.is_a?(String) ? value : malformed("a number in place of a message")
      def numbers(value, most) = Protobuf::Reader.numbers(value, most)
      def integer(value) = value.is_a?(Integer) ? value : malformed("bytes in place of a number")

      def pair(bytes) = fields(bytes).values_at(1, 2).map { |value| integer(value || 0) }

      # Only the first two have a meaning.
      def comment(value)
        @comments.concat(numbers(value, Bounds::RECORDING_PARTS)) if @comments.size < 2
      end

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
            part
            found = fields(value)
            lines << Line.new(integer(found[1] || 0), Protobuf::Reader.signed(integer(found[2] || 0)))
          end
        end
        @locations[id] = Location.new(mapping, lines)
      end

      def sample(bytes)
        found = Sample.new("".b, [], {})
        Protobuf::Reader.new(message(bytes)).each do |field, value|
          case field
          when 1 then found.locations << (value.is_a?(Integer) ? Protobuf.varint(value) : value)
          when 2 then figures(found.figures, value)
          when 3 then found.labels.store(*label(message(value))) unless @recording.foreign?
          end
        end
        too_deep if found.locations.bytesize > Bounds::RECORDING_DEPTH * NUMBER_BYTES
        found
      end

      def figures(list, value)
        numbers(value, @types.size).each { |number| list << Protobuf::Reader.signed(number) }
        malformed("a sample with more figures than sample types") if list.size > @types.size
      end

      def text(index) = (@texts[index] if index < @texts.size) || malformed("a text that is not there")

      # The metadata of a recording; empty for the file of another tool.
      def told
        mark, json = @comments.first(2).map { |index| text(index) }
        version = mark.to_s[/\A#{PprofWriter::MARK} (\d{1,9})\z/o, 1]
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
        @places = kinds.to_h do |kind|
          [kind.name, [kind.counts, kind.weighs, kind.looked].map { |type| type && types.index(type) }]
        end
        kinds
      end

      def samples
        @names = @recording.kinds.each_with_index.to_h { |kind, index| [kind.name, index] }
        @nodes = {"" => 0}
        @labels = {}
        Protobuf::Reader.new(@bytes).each do |field, value|
          next unless field == PprofWriter::SAMPLE

          sample = sample(value)
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
        labels = sample.labels
        places = @places[labels["kind"]] or return # of a later version
        count, weight, looked = places.map { |index| index && sample.figures[index] }
        bucket = number(labels, "at") / @recording.bucket_ns
        malformed("it is too long") if bucket >= 1 << Recording::BUCKET_BITS
        thread = labels["thread"].to_s[/\A\d{1,18}/].to_i
        series = @recording.series_number(number(labels, "pid"), thread, labels["request"]&.to_s)
        malformed("it has too many threads") if series >= 1 << Recording::SERIES_BITS
        @recording.add(bucket, series, @names.fetch(labels["kind"]), node(sample.locations),
                       count || 0, weight || 0, looked || count || 0)
      end

      def number(labels, key)
        value = labels.fetch(key, 0)
        value.is_a?(Integer) ? value : malformed("a label #{key} that is a text")
      end

      # [key, text or number]
      def label(bytes)
        @labels[bytes] ||= begin
          part
          found = fields(bytes)
          index = integer(found[2] || 0)
          [text(integer(found[1] || 0)), index.positive? ? text(index) : integer(found[3] || 0)]
        end
      end

      # The node for packed locations.
      def node(packed)
        @nodes[packed] ||= begin
          depth = 0
          numbers(packed, Bounds::RECORDING_DEPTH).reverse_each.inject(0) do |caller, id|
            found = frames(id)
            too_deep if (depth += found.size) > Bounds::RECORDING_DEPTH
            found.reverse_each.inject(caller) { |parent, frame| child(parent, frame) }
          end
        end
      end

      def too_deep = malformed("a stack of more than #{Bounds::RECORDING_DEPTH} frames")

      def child(parent, frame)
        node = @recording.child(parent, frame)
        node < 1 << Recording::NODE_BITS ? node : malformed("it has too many call paths")
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
