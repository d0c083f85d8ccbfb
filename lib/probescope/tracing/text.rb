# frozen_string_literal: true

require "json"
require_relative "definitions"

module Probescope
  module Tracing
    # Makes text from a traced process safe to print. A class may be named like an escape code.
    module Text
      # Control characters, and characters that reorder or hide text on a terminal.
      UNSAFE = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/
      NAMED = {"\n" => '\n', "\r" => '\r', "\t" => '\t', "\e" => '\e'}.freeze

      module_function

      # One line of printable text; invalid bytes become U+FFFD.
      def clean(text)
        text.to_s.dup.force_encoding(Encoding::UTF_8).scrub.gsub(UNSAFE) do |char|
          NAMED.fetch(char) { char.ord < 0x100 ? format('\x%02x', char.ord) : format('\u%04x', char.ord) }
        end
      end

      # A value or a text of a program whose texts have room for 200 bytes, the same with each version: of
      # one that has no room, bpftrace 0.27 has 200 bytes and "..", earlier versions have 199 bytes.
      def without_mark(value)
        value.is_a?(String) && value.bytesize > 200 && value.end_with?("..") ? value[0...-3] : value
      end

      # The JSON of a command's answer, or of one line of it, as in docs/schema.
      def answer(command, fields) = json({schema: Definitions::SCHEMA, command: command, **fields})

      # JSON without characters that a terminal interprets. JSON.generate itself escapes only the
      # first 32 control characters.
      def json(object)
        obeyed = /[\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/
        JSON.generate(object).gsub(obeyed) { |char| format('\u%04x', char.ord) }
      end
    end
  end
end
