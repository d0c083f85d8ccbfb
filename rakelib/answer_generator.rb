# frozen_string_literal: true

require "yaml"
require_relative "schema_generator"

# Generates, from the tables of docs/schema/schemas.yml, the definitions that the commands of both
# hosts read.
class AnswerGenerator
  SOURCE = SchemaGenerator::SOURCE
  OUTPUTS = {"lib/probescope/host/answers.rb" => :ruby,
             "python/probescope/command/answers.py" => :python}.freeze
  MAP_KEYS = 16_384
  MADE = "# Made by `rake generate` from #{SOURCE}.".freeze

  def self.write(root)
    generator = new(File.read(File.join(root, SOURCE)))
    OUTPUTS.each { |path, method| File.write(File.join(root, path), generator.public_send(method)) }
  end

  def initialize(yaml)
    @definition = YAML.safe_load(yaml)
    @commands = @definition.fetch("commands").select { |_, command| command.key?("table") }
  end

  def ruby
    <<~RUBY
      # frozen_string_literal: true

      #{MADE}
      module Probescope
        module Host
          # The fields and columns of each command that shows a table.
          module Answers
            # kind: name of a function of Cells. key: a key of the row, or nil.
            Column = Struct.new(:heading, :kind, :key, :optional)
            # fields: keys of a row in JSON. nothing, not_covered: texts; not_covered may be nil.
            # map_keys: number of rows for which bpftrace has room. map_keys_by_request: the same for
            # the program that tells requests apart. samples: whether the figures come from samples,
            # which have a rate.
            Answer = Struct.new(:fields, :columns, :nothing, :not_covered, :map_keys, :map_keys_by_request,
                                :samples, keyword_init: true)

            ALL = {
      #{@commands.map { |name, command| ruby_answer(name, command) }.join(",\n")}
            }.freeze
          end
        end
      end
    RUBY
  end

  def python
    <<~PYTHON
      """The fields and columns of each command that shows a table."""

      #{MADE}

      from __future__ import annotations

      from typing import Dict, NamedTuple, Optional, Tuple


      class Column(NamedTuple):
          """kind: name of a function of probescope.command.cells. key: a key of the row, or None."""

          heading: str
          kind: str
          key: Optional[str]
          optional: bool


      class Answer(NamedTuple):
          """fields: keys of a row in JSON. nothing, not_covered: texts; not_covered may be None.
          map_keys: number of rows for which bpftrace has room. map_keys_by_request: the same for the
          program that tells requests apart. samples: whether the figures come from samples, which
          have a rate.
          """

          fields: Tuple[str, ...]
          columns: Tuple[Column, ...]
          nothing: str
          not_covered: Optional[str]
          map_keys: int
          map_keys_by_request: int
          samples: bool


      ALL: Dict[str, Answer] = {
      #{@commands.map { |name, command| python_answer(name, command) }.join("\n")}
      }
    PYTHON
  end

  private

  def ruby_answer(name, command)
    columns = columns(command).map do |heading, kind, key, optional|
      "[#{heading.inspect}, :#{kind}, #{key&.to_sym.inspect}, #{optional}]"
    end
    settings = settings(command).map do |key, value|
      "#{key}: #{value.is_a?(Integer) ? digits(value) : value.inspect}"
    end
    text = <<~RUBY.chomp
      #{name.inspect} => Answer.new(
        fields: #{wrapped("%i[", fields(command), " ", "]", 13)},
        columns: [
          #{columns.join(",\n    ")}
        ].map { |column| Column.new(*column).freeze },
        #{settings.join(",\n  ")}
      )
    RUBY
    text.gsub(/^(?=.)/, " " * 8)
  end

  def python_answer(name, command)
    columns = columns(command).map do |heading, *rest|
      "Column(#{[heading, *rest].map { |value| python_value(value) }.join(", ")}),"
    end
    text = <<~PYTHON.chomp
      #{name.inspect}: Answer(
          fields=(
              #{fields(command).map { |field| "#{field.inspect}," }.join("\n        ")}
          ),
          columns=(
              #{columns.join("\n        ")}
          ),
          #{settings(command).map { |key, value| "#{key}=#{python_value(value)}," }.join("\n    ")}
      ),
    PYTHON
    text.gsub(/^(?=.)/, " " * 4)
  end

  def columns(command)
    command.fetch("table").fetch("columns").map do |heading, (kind, key, optional)|
      [heading, kind, key, optional == "optional"]
    end
  end

  def fields(command)
    parts, own = command.fetch("row").partition { |name, _| name == "parts" }
    parts.flat_map(&:last).flat_map { |name| @definition.dig("parts", name).keys } + own.to_h.keys
  end

  def settings(command)
    table = command.fetch("table")
    keys = table.fetch("map_keys", MAP_KEYS)
    {nothing: table.fetch("nothing"), not_covered: table["not_covered"], map_keys: keys,
     map_keys_by_request: table.fetch("map_keys_by_request", keys),
     samples: command.fetch("more", {}).key?("sample_rate")}
  end

  def wrapped(head, words, between, tail, indent)
    lines = words.each_with_object([+""]) do |word, all|
      all << +"" if all.last.size + word.size > 100
      all.last << between unless all.last.empty?
      all.last << word
    end
    "#{head}#{lines.join("\n#{" " * indent}")}#{tail}"
  end

  # 16384 -> "16_384"
  def digits(number) = number.to_s.reverse.scan(/\d{1,3}/).join("_").reverse

  def python_value(value)
    case value
    when nil then "None"
    when true, false then value.to_s.capitalize
    when Integer then digits(value)
    else value.inspect
    end
  end
end
