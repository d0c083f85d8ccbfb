# frozen_string_literal: true

require "yaml"
require_relative "generated_comments"

# Generates the C struct probescope_info, and the layout by which gem and wheel read it, from
# providers/info.yml. Each public method returns the text of one generated file.
class InfoGenerator
  SOURCE = "providers/info.yml"
  OUTPUTS = {
    "ext/core/usdt/info.gen.h" => :c_header,
    "lib/probescope/tracing/info_layout.rb" => :ruby_layout,
    "python/probescope/command/info_layout.py" => :python_layout
  }.freeze
  # Number types: bytes, and their names in C, String#unpack and Python's struct.
  NUMBERS = {"u32" => [4, "uint32_t", "L<", "I"], "i32" => [4, "int32_t", "l<", "i"],
             "u64" => [8, "uint64_t", "Q<", "Q"]}.freeze
  # The sections of the struct in their order, with a comment for each.
  SECTIONS = {"head" => "The layout of the rest.", "process" => "Fields of every library.",
              "appended" => "Fields of later libraries only."}.freeze
  ROW = {"probe" => "A row for each probe."}.freeze

  Field = Struct.new(:name, :type, :at, :about, keyword_init: true) do
    def bytes = text || NUMBERS.fetch(type).first
    def c = text ? "char #{name}[#{text}]" : "#{NUMBERS.fetch(type)[1]} #{name}"
    def ruby = text ? "Z#{text}" : NUMBERS.fetch(type)[2]
    def python = text ? "#{text}s" : NUMBERS.fetch(type)[3]
    def end = at + bytes
    def aligned? = text || (at % bytes).zero?

    private

    def text = type[/\Atext (\d+)\z/, 1]&.to_i
  end

  def self.write(root)
    generator = new(File.read(File.join(root, SOURCE)))
    OUTPUTS.each { |path, method| File.write(File.join(root, path), generator.public_send(method)) }
  end

  def initialize(yaml)
    @definition = YAML.safe_load(yaml)
    @sections = [*SECTIONS.keys, *ROW.keys].to_h do |section|
      [section, @definition.fetch(section).map { |field| Field.new(**field.transform_keys(&:to_sym)) }]
    end
    check("probescope_info", head)
    check("a row of probe", row)
  end

  def c_header
    <<~C
      /* Generated from #{SOURCE} by `rake generate`. Do not edit. */
      #ifndef PS_INFO_GEN_H
      #define PS_INFO_GEN_H

      #include <stddef.h>
      #include <stdint.h>

      #include "usdt/probes.gen.h"

      #define PS_INFO_MAGIC "#{magic}"

      enum ps_state {
      #{c_states}
      };
      #define PS_STATE_NAMES #{states.map { |state| "\"#{state["name"]}\"" }.join(", ")}

      enum ps_flag {
      #{c_flags}
      };

      struct ps_info_probe {
      #{c_fields(row)}
      };

      struct ps_info {
      #{c_fields(head)}
          struct ps_info_probe probes[PS_PROBE_COUNT];
      };

      /* Commands of other versions read at these offsets. */
      #{c_checks.map { |condition| "_Static_assert(#{condition}, \"#{SOURCE}\");" }.join("\n")}

      #endif
    C
  end

  def ruby_layout
    <<~RUBY
      # frozen_string_literal: true

      # Generated from #{SOURCE} by `rake generate`. Do not edit.
      module Probescope
        module Tracing
          # The layout of probescope_info in a process. Each field has its offset, its number of
          # bytes, and its type for String#unpack.
          module InfoLayout
            MAGIC = "#{magic}"
            # Names of the states, by their numbers.
            STATES = %w[#{states.map { |state| state["name"] }.join(" ")}].freeze
            FLAGS = {#{flags.map { |name, bit| "#{name}: #{bit}" }.join(", ")}}.freeze
      #{sections { |name, about, fields| ruby_fields(name, about, fields) }}
          end
        end
      end
    RUBY
  end

  def python_layout
    <<~PYTHON
      """The layout of probescope_info in a process.

      Generated from #{SOURCE} by `rake generate`. Do not edit.
      """

      from __future__ import annotations

      from typing import Dict, Tuple

      # Each field has its offset, and its type for struct.
      Fields = Dict[str, Tuple[int, str]]

      MAGIC = b"#{magic}"
      # Names of the states, by their numbers.
      STATES = (#{states.map { |state| "\"#{state["name"]}\"" }.join(", ")})
      FLAGS = {#{flags.map { |name, bit| "\"#{name}\": #{bit}" }.join(", ")}}
      #{sections { |name, about, fields| python_fields(name, about, fields) }}
    PYTHON
  end

  private

  def magic = @definition.fetch("magic")
  def states = @definition.fetch("states")

  def flags
    @definition.fetch("flags").each_with_index.map do |flag, i|
      [flag.fetch("name"), 1 << i, flag.fetch("about")]
    end
  end

  def head = @sections.values_at(*SECTIONS.keys).flatten
  def row = @sections.fetch("probe")

  # Checks that the fields follow each other as C lays them out.
  def check(what, fields)
    fields.reduce(0) do |ending, field|
      if field.at != ending
        raise "#{SOURCE}: #{field.name} of #{what} is at #{field.at}, " \
              "and what comes before it ends at #{ending}"
      end
      unless field.aligned?
        raise "#{SOURCE}: #{field.name} of #{what} is at #{field.at}, " \
              "which C does not allow for #{field.type}"
      end

      field.end
    end
    if fields.last.end % 8 != 0
      raise "#{SOURCE}: C adds bytes at the end of #{what}, where the last field ends at #{fields.last.end}"
    end
    raise "#{SOURCE}: two fields of #{what} have the same name" if fields.map(&:name).uniq.size < fields.size
  end

  def c_states
    states.map do |state|
      GeneratedComments.c("    PS_STATE_#{state["name"].upcase},", state["about"])
    end.join("\n")
  end

  def c_flags
    flags.map do |name, bit, about|
      GeneratedComments.c("    PS_INFO_#{name.upcase} = #{bit},", about)
    end.join("\n")
  end

  def c_fields(fields)
    fields.map { |field| GeneratedComments.c("    #{field.c};", field.about) }.join("\n")
  end

  def c_checks
    [*row.map { |field| "offsetof(struct ps_info_probe, #{field.name}) == #{field.at}" },
     "sizeof(struct ps_info_probe) == #{row.last.end}",
     *head.map { |field| "offsetof(struct ps_info, #{field.name}) == #{field.at}" },
     "offsetof(struct ps_info, probes) == #{head.last.end}"]
  end

  def sections
    {**SECTIONS, **ROW}.map { |name, about| yield name.upcase, about, @sections.fetch(name) }.join("\n")
  end

  def ruby_fields(name, about, fields)
    lines = fields.map { |field| "        #{field.name}: [#{field.at}, #{field.bytes}, \"#{field.ruby}\"]" }
    "\n      # #{about}\n      #{name} = {\n#{lines.join(",\n")}\n      }.freeze"
  end

  def python_fields(name, about, fields)
    lines = fields.map { |field| "    \"#{field.name}\": (#{field.at}, \"#{field.python}\"),\n" }
    "\n# #{about}\n#{name}: Fields = {\n#{lines.join}}"
  end
end
