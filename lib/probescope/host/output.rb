# frozen_string_literal: true

require "json"

module Probescope
  module Host
    # What `bpftrace -f json` prints, read line by line.
    class Output
      # Up to 0.27 a byte >= 0x80 is printed as a sign-extended \uffffffXX, which JSON reads as
      # U+FFFF and six letters. Other escapes are matched too, so that a backslash of the text
      # itself is never taken for the start of one.
      EXTENDED = "\\uffffff".b
      ESCAPE = /\\(?:uffffff(\h\h)|.)/n

      # {"raised" => {key => value}}; a key is text that only means something to the bpftrace that
      # printed it.
      attr_reader :maps
      # Events that the kernel could not hand over.
      attr_reader :lost_events

      # From here on what programs print is left out, and their maps alone are taken.
      attr_writer :deaf

      # The block takes each text that the program prints with printf().
      def initialize(&printed)
        @printed = printed
        @maps = {}
        @lost_events = 0
      end

      # Takes one line; ignores what is no JSON (bpftrace also warns on stdout).
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
        JSON.parse(bytes.force_encoding(Encoding::UTF_8).scrub)
      rescue JSON::ParserError
        nil
      end
    end
  end
end
