# frozen_string_literal: true

require "json"

module Probescope
  module Host
    # Text that came from a target, made safe to show: a class may be named like an escape code.
    module Text
      # Controls, and what reorders or hides text on a terminal.
      UNSAFE = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/
      # The version of the JSON's shape, which docs/schema describes: fields are added to it, and
      # none changes its meaning.
      SCHEMA = 1
      NAMED = {"\n" => '\n', "\r" => '\r', "\t" => '\t', "\e" => '\e'}.freeze

      module_function

      # One line of printable text; invalid bytes become U+FFFD.
      def clean(text)
        text.to_s.dup.force_encoding(Encoding::UTF_8).scrub.gsub(UNSAFE) do |char|
          NAMED.fetch(char) { char.ord < 0x100 ? format('\x%02x', char.ord) : format('\u%04x', char.ord) }
        end
      end

      # The answer of a command, or a line of it, as docs/schema has it.
      def answer(command, fields) = json({schema: SCHEMA, command: command, **fields})

      # The same JSON, with nothing in it that a terminal obeys: JSON itself escapes only the first
      # 32 controls.
      def json(object)
        obeyed = /[\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/
        JSON.generate(object).gsub(obeyed) { |char| format('\u%04x', char.ord) }
      end
    end
  end
end
