# frozen_string_literal: true

require "json"

module Probescope
  module Tracing
    # Reads the output of `bpftrace -f json`, line by line.
    class Output
      # bpftrace up to 0.27 prints a byte >= 0x80 as a sign-extended \uffffffXX, which JSON reads as
      # U+FFFF and six letters. ESCAPE also matches other escapes, so that a backslash of the text
      # itself is never taken for the start of one.
      EXTENDED = "\\uffffff".b
      ESCAPE = /\\(?:uffffff(\h\h)|.)/n

      # {"raised" => {key => value}}. A key is text that is unique only within this run of bpftrace.
      # A key that is no UTF-8 is binary: with U+FFFD for each wrong byte, two keys could be equal.
      attr_reader :maps
      # Events that bpftrace reports as lost.
      attr_reader :lost_events

      # When true, the text that programs print is ignored, and only maps are taken.
      attr_writer :deaf

      # The block receives each text that the program prints with printf().
      def initialize(&printed)
        @printed = printed
        @maps = {}
        @lost_events = 0
      end

      # Takes one line. Ignores lines that are not JSON, because bpftrace also prints warnings on
      # stdout.
      def <<(line)
        message = parse(line)
        return self unless message.is_a?(Hash)

        case message["type"]
        when "map", "hist"
          message["data"].each { |name, values| @maps[name.delete_prefix("@")] = values }
        when "printf" then @printed&.call(message["data"].to_s) unless @deaf
        when "lost_events"
          @lost_events += Integer(message.dig("data", "events") || message["count"] || 0)
        end
        self
      end

      private

      def parse(line)
        bytes = line.b
        if bytes.include?(EXTENDED)
          bytes.gsub!(ESCAPE) { |escape| Regexp.last_match(1) ? Regexp.last_match(1).hex.chr : escape }
        end
        text = bytes.force_encoding(Encoding::UTF_8)
        message = JSON.parse(text)
        text.valid_encoding? ? message : whole(message)
      rescue JSON::ParserError
        nil
      end

      # Values with U+FFFD for each byte that is no UTF-8, and keys that stay different.
      def whole(value)
        case value
        when String then value.scrub
        when Array then value.map { |one| whole(one) }
        when Hash
          value.to_h { |key, one| [key.valid_encoding? ? key : key.b, whole(one)] }
        else value
        end
      end
    end
  end
end
