# frozen_string_literal: true

require "yaml"
require_relative "schema_generator"

# Generates, from the tables of docs/schema/schemas.yml, the definitions that the commands of gem and
# wheel read.
class DefinitionGenerator
  SOURCE = SchemaGenerator::SOURCE
  OUTPUTS = {"lib/probescope/tracing/definitions.rb" => :ruby,
             "python/probescope/command/definitions.py" => :python}.freeze
  MAP_KEYS = 16_384
  MADE = "# Made by `rake generate` from #{SOURCE}.".freeze

  def self.write(root)
    generator = new(File.read(File.join(root, SOURCE)))
    OUTPUTS.each { |path, method| File.write(File.join(root, path), generator.public_send(method)) }
  end

  def initialize(yaml)
    @definition = YAML.safe_load(yaml)
    commands = @definition.fetch("commands")
    @commands = commands.select { |_, command| command.key?("table") }
    @lines = commands.transform_values { |command| command["line"] }.compact
    @lists = commands.transform_values { |command| command["lists"] }.compact
    @process = @definition.dig("types", "process", "object").keys
  end

  def ruby
    <<~RUBY
      # frozen_string_literal: true

      #{MADE}
      module Probescope
        module Tracing
          # The fields and columns of each command that shows a table or lines.
          module Definitions
            # kind: name of a function of Cells. key: a key of the row, or nil. width: characters of a
            # line's column.
            Column = Struct.new(:heading, :kind, :key, :optional, :width)
            # fields: keys of a row in JSON. nothing, not_covered: texts; not_covered may be nil.
            # map_keys: number of rows for which bpftrace has room. map_keys_by_request: the same for
            # the program that tells requests apart. samples: whether the figures come from samples,
            # which have a rate.
            Definition = Struct.new(:fields, :columns, :nothing, :not_covered, :map_keys,
                                    :map_keys_by_request, :samples, keyword_init: true)

            ALL = {
      #{@commands.map { |name, command| ruby_definition(name, command) }.join(",\n")}
            }.freeze

            # A command that prints a line for each event. printed: the fields that its program prints
            # after a mark. takes: {figure => probe without which it is not known}.
            Line = Struct.new(:columns, :printed, :takes, keyword_init: true)

            LINES = {
      #{@lines.map { |name, line| ruby_line(name, line) }.join(",\n")}
            }.freeze

            # The columns of what commands list: {command => {field => columns}}.
            LISTS = {
      #{@lists.map { |name, lists| ruby_lists(name, lists) }.join(",\n")}
            }.freeze

            # The version of the JSON. Within a version, fields are added, and no field changes its meaning.
            SCHEMA = #{@definition.fetch("schema")}
            # How a call ended, as probes tell it.
            OUTCOMES = {#{outcomes.map { |number, name| "#{number} => #{name.inspect}" }.join(", ")}}.freeze
            # Number of rows for which bpftrace has room, where a command gives no other number.
            MAP_KEYS = #{digits(MAP_KEYS)}
            # Fields of the process in the JSON of status.
            PROCESS = #{wrapped("%i[", @process, " ", "].freeze", 19)}
          end
        end
      end
    RUBY
  end

  def python
    <<~PYTHON
      """The fields and columns of each command that shows a table or lines."""

      #{MADE}

      from __future__ import annotations

      from typing import Dict, NamedTuple, Optional, Tuple


      class Column(NamedTuple):
          """kind: name of a function of probescope.command.cells. key: a key of the row, or None. width:
          characters of a line's column.
          """

          heading: str
          kind: str
          key: Optional[str]
          optional: bool
          width: Optional[int] = None


      class Definition(NamedTuple):
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


      class Line(NamedTuple):
          """A command that prints a line for each event. printed: the fields that its program prints
          after a mark. takes: {figure: probe without which it is not known}.
          """

          columns: Tuple[Column, ...]
          printed: Tuple[str, ...]
          takes: Dict[str, str]


      ALL: Dict[str, Definition] = {
      #{@commands.map { |name, command| python_definition(name, command) }.join("\n")}
      }

      LINES: Dict[str, Line] = {
      #{@lines.map { |name, line| python_line(name, line) }.join("\n")}
      }

      # The columns of what commands list: {command: {field: columns}}.
      LISTS: Dict[str, Dict[str, Tuple[Column, ...]]] = {
      #{@lists.map { |name, lists| python_lists(name, lists) }.join("\n")}
      }

      # The version of the JSON. Within a version, fields are added, and no field changes its meaning.
      SCHEMA = #{@definition.fetch("schema")}
      # How a call ended, as probes tell it.
      OUTCOMES = {#{outcomes.map { |number, name| "#{number}: #{name.inspect}" }.join(", ")}}
      # Rows that bpftrace has room for, unless a command says otherwise.
      MAP_KEYS = #{digits(MAP_KEYS)}
      # Fields of the process in the JSON of status.
      PROCESS = (
      #{@process.map { |name| "    #{name.inspect}," }.join("\n")}
      )
    PYTHON
  end

  private

  def ruby_definition(name, command)
    columns = columns(command).map { |column| ruby_column(column) }
    settings = settings(command).map do |key, value|
      "#{key}: #{value.is_a?(Integer) ? digits(value) : value.inspect}"
    end
    text = <<~RUBY.chomp
      #{name.inspect} => Definition.new(
        fields: #{wrapped("%i[", fields(command), " ", "]", 13)},
        columns: [
          #{columns.join(",\n    ")}
        ].map { |column| Column.new(*column).freeze },
        #{settings.join(",\n  ")}
      )
    RUBY
    text.gsub(/^(?=.)/, " " * 8)
  end

  def python_definition(name, command)
    columns = columns(command).map { |column| python_column(column) }
    text = <<~PYTHON.chomp
      #{name.inspect}: Definition(
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

  def ruby_line(name, line)
    text = <<~RUBY.chomp
      #{name.inspect} => Line.new(
        columns: [
          #{of_a_line(line.fetch("columns")).map { |column| ruby_column(column) }.join(",\n    ")}
        ].map { |column| Column.new(*column).freeze },
        printed: #{wrapped("%i[", line.fetch("printed", []), " ", "]", 14)},
        takes: {#{line.fetch("takes", {}).map { |figure, probe| "#{figure}: :#{probe}" }.join(", ")}}
      )
    RUBY
    text.gsub(/^(?=.)/, " " * 8)
  end

  def python_line(name, line)
    takes = line.fetch("takes", {}).map { |figure, probe| "#{figure.inspect}: #{probe.inspect}," }
    text = <<~PYTHON.chomp
      #{name.inspect}: Line(
          columns=(
              #{of_a_line(line.fetch("columns")).map { |column| python_column(column) }.join("\n        ")}
          ),
          printed=(#{block(line.fetch("printed", []).map { |field| "#{field.inspect}," })}),
          takes={#{block(takes)}},
      ),
    PYTHON
    text.gsub(/^(?=.)/, " " * 4)
  end

  def ruby_lists(name, lists)
    lists = lists.map do |field, columns|
      columns = of_a_line(columns).map { |column| ruby_column(column) }
      "#{field}: [\n    #{columns.join(",\n    ")}\n  ].map { |column| Column.new(*column).freeze }"
    end
    "#{name.inspect} => {\n  #{lists.join(",\n  ")}\n}".gsub(/^(?=.)/, " " * 8)
  end

  def python_lists(name, lists)
    lists = lists.map do |field, columns|
      columns = of_a_line(columns).map { |column| python_column(column) }
      "#{field.inspect}: (\n        #{columns.join("\n        ")}\n    ),"
    end
    "#{name.inspect}: {\n    #{lists.join("\n    ")}\n},".gsub(/^(?=.)/, " " * 4)
  end

  def ruby_column((heading, kind, key, *rest))
    "[#{[heading.inspect, kind.to_sym.inspect, key&.to_sym.inspect, *rest].join(", ")}]"
  end

  def python_column(column) = "Column(#{column.map { |value| python_value(value) }.join(", ")}),"

  # The lines between two brackets.
  def block(lines) = lines.empty? ? "" : "\n        #{lines.join("\n        ")}\n    "

  def outcomes = @definition.fetch("outcomes").each_with_index.to_h { |name, number| [number, name] }

  def of_a_line(columns)
    columns.map { |heading, (kind, key, width)| [heading, kind, key, false, *width] }
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
