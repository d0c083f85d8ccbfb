# frozen_string_literal: true

require "yaml"
require_relative "generated_comments"

# Generates the C header and sites, the probe reference, and the constants of both languages from
# providers/probescope.yml. Each public method returns the text of one generated file.
class AbiGenerator
  SOURCE = "providers/probescope.yml"
  REFERENCE = "docs/reference/probes.md"
  OUTPUTS = {
    "ext/core/usdt/probes.gen.h" => :c_header,
    "ext/core/usdt/probe_sites.gen.c" => :c_sites,
    REFERENCE => :reference,
    "lib/probescope/abi.rb" => :ruby_constants,
    "python/probescope/abi.py" => :python_constants
  }.freeze
  # bpftrace before 0.24 has no arg6, so a probe has at most five arguments and the pointer to
  # `more`.
  MAX_ARGS = 5

  Field = Struct.new(:name, :type, :unit, :about, keyword_init: true) do
    def c_type = type == "string" ? "const char *" : "uint64_t "
  end

  Probe = Struct.new(:name, :about, :args, :more, :cadence, :since, :until, keyword_init: true) do
    def constant = "PS_PROBE_#{name.upcase}"
    def more_struct = "struct ps_more_#{name}"
    def more? = !more.empty?
  end

  attr_reader :probes

  def self.write(root)
    generator = new(File.read(File.join(root, SOURCE)))
    OUTPUTS.each { |path, method| File.write(File.join(root, path), generator.public_send(method)) }
  end

  def initialize(yaml)
    definition = YAML.safe_load(yaml, aliases: true)
    @abi = definition.fetch("abi")
    @provider = definition.fetch("provider")
    @probes = definition.fetch("probes").map { |probe| parse(probe) }
  end

  def c_header
    <<~C
      /* Generated from #{SOURCE} by `rake generate`. Do not edit. */
      #ifndef PS_PROBES_GEN_H
      #define PS_PROBES_GEN_H

      #include <stdint.h>

      #define PS_ABI #{@abi}
      #define PS_PROVIDER "#{@provider}"

      enum ps_probe {
      #{@probes.map { |probe| "    #{probe.constant}," }.join("\n")}
          PS_PROBE_COUNT
      };

      extern const char *const ps_probe_names[PS_PROBE_COUNT];

      #{@probes.select(&:more?).map { |probe| more_struct(probe) }.join("\n\n")}

      #{@probes.map { |probe| "void #{signature(probe)};" }.join("\n")}

      #endif
    C
  end

  def c_sites
    <<~C
      /* Generated from #{SOURCE} by `rake generate`. Do not edit. */
      #include "usdt/probes.gen.h"

      #include "usdt/probe.h"

      const char *const ps_probe_names[PS_PROBE_COUNT] = {
      #{@probes.map { |probe| "    [#{probe.constant}] = \"#{probe.name}\"," }.join("\n")}
      };

      #{@probes.map { |probe| site(probe) }.join("\n\n")}
    C
  end

  def reference
    <<~MARKDOWN
      <!-- Generated from #{SOURCE} by `rake generate`. Do not edit. -->
      # Probes, ABI #{@abi}

      The provider is `#{@provider}`. Names and arguments are the same in every language. Times are ns
      of CLOCK_MONOTONIC. Strings are NUL-terminated UTF-8; read them with `str(arg0, 64)`. If a probe
      has `more`, `arg5` points to the fields of that table, and the number is the field's offset. Read
      a number with `*(uint64*)(arg5+8)`, and a string with `str(*(uint64*)(arg5+0), 64)`. Fields are
      only appended.

      While a tracer listens to any probe of the process, a name stays at its address and can be read
      there. Equal names have the same address. When the last tracer has left, the process frees all
      names. `more`, messages and trace contexts can be read only while the probe fires.

      #{@probes.map { |probe| reference_section(probe) }.join("\n\n")}
    MARKDOWN
  end

  def ruby_constants
    <<~RUBY
      # frozen_string_literal: true

      # Generated from #{SOURCE} by `rake generate`. Do not edit.
      module Probescope
        # The probes as the command reads them. args: names in the order of arg0, arg1, ... more: the
        # fields behind arg5, with their offsets.
        module ABI
          VERSION = #{@abi}
          PROVIDER = "#{@provider}"
          PROBES = {
      #{@probes.map { |probe| ruby_probe(probe) }.join(",\n")}
          }.freeze
        end
      end
    RUBY
  end

  def python_constants
    <<~PYTHON
      """The probes as a tracer reads them.

      Generated from #{SOURCE} by `rake generate`. Do not edit.
      """

      from __future__ import annotations

      from typing import Dict, NamedTuple


      class Probe(NamedTuple):
          """args: in the order of arg0, arg1, ... more: the fields behind arg5, in the order of their
          offsets. Each is str or int.
          """

          args: Dict[str, type]
          more: Dict[str, type]

          def place(self, field: str) -> str:
              """Returns the field as a bpftrace expression. Raises KeyError."""
              if field in self.args:
                  place = f"arg{list(self.args).index(field)}"
              else:
                  place = f"*(uint64*)(arg5+{8 * list(self.more).index(field)})" if field in self.more else ""
              if not place:
                  raise KeyError(field)
              return f"str({place}, 64)" if {**self.args, **self.more}[field] is str else place


      VERSION = #{@abi}
      PROVIDER = "#{@provider}"
      PROBES: Dict[str, Probe] = {
      #{@probes.map { |probe| python_probe(probe) }.join("\n")}
      }
    PYTHON
  end

  private

  def parse(probe)
    args, more = fields(probe["args"]), fields(probe["more"])
    raise "#{probe["name"]}: more than #{MAX_ARGS} arguments" if args.size > MAX_ARGS

    twice = [*args, *more].map(&:name).tally.select { |_, times| times > 1 }.keys
    raise "#{probe["name"]}: two fields have the name #{twice.join(", ")}" if twice.any?

    Probe.new(name: probe.fetch("name"), about: probe.fetch("about"), args: args, more: more,
              cadence: probe["cadence"], since: probe["since"] || {}, until: probe["until"] || {})
  end

  def fields(list)
    (list || []).map { |field| Field.new(**field.transform_keys(&:to_sym)) }
  end

  def more_struct(probe)
    lines = probe.more.map do |field|
      GeneratedComments.c("    #{field.c_type}#{field.name};", describe(field))
    end
    "#{probe.more_struct} {\n#{lines.join("\n")}\n};"
  end

  def signature(probe)
    params = probe.args.map { |field| "#{field.c_type}#{field.name}" }
    params << "const #{probe.more_struct} *more" if probe.more?
    "ps_fire_#{probe.name}(#{params.empty? ? "void" : params.join(", ")})"
  end

  def site(probe)
    values = probe.args.map(&:name)
    values = values.fill("0", values.size...MAX_ARGS) + ["more"] if probe.more?
    registers = values.each_with_index.map { |value, i| "PS_REG(#{i}, #{value});" }
    operands = values.each_index.map { |i| "PS_OPERAND(#{i})" }.join(' " " ')
    inputs = ["PS_SEMAPHORE(#{probe.constant})", *values.each_index.map { |i| "\"r\"(reg#{i})" }].join(", ")
    emit = "PS_EMIT(\"#{probe.name}\", #{operands.empty? ? '""' : operands},\n            #{inputs});"
    "PS_SITE_FUNCTION void #{signature(probe)}\n{\n    #{[*registers, emit].join("\n    ")}\n}"
  end

  def reference_section(probe)
    notes = probe.since.map do |runtime, version|
      last = probe.until[runtime]
      "On #{runtime.capitalize} from version #{version} #{last ? "to #{last}" : "on"}."
    end
    notes.unshift("Fires #{probe.cadence}.") if probe.cadence
    lines = ["## `#{probe.name}`", "", [probe.about, *notes].join(" "), ""]
    unless probe.args.empty?
      lines += field_table("argument", probe.args.each_with_index.map { |field, i| ["arg#{i}", field] })
    end
    if probe.more?
      more = probe.more.each_with_index.map { |field, i| ["arg5+#{i * 8}", field] }
      lines << "" unless probe.args.empty?
      lines += field_table("more", more)
    end
    lines.join("\n").strip
  end

  def field_table(title, rows)
    lines = rows.map do |place, field|
      type = field.type == "string" ? "string" : "number"
      "| `#{place}` | #{field.name} | #{type} | #{describe(field)} |"
    end
    ["| #{title} | name | type | meaning |", "|---|---|---|---|", *lines]
  end

  # The meaning of a field, with its unit unless the meaning names the unit.
  def describe(field)
    named = field.unit.nil? || field.about.match?(/\b#{field.unit}\b/)
    named ? field.about : "#{field.about} (#{field.unit})"
  end

  def ruby_probe(probe)
    more = probe.more.each_with_index.map { |field, i| "#{field.name}: #{i * 8}" }
    "      #{probe.name}: {args: %i[#{probe.args.map(&:name).join(" ")}], more: {#{more.join(", ")}}}"
  end

  def python_probe(probe)
    args, more = [probe.args, probe.more].map do |fields|
      "{#{fields.map { |field| "\"#{field.name}\": #{field.type == "string" ? "str" : "int"}" }.join(", ")}}"
    end
    "    \"#{probe.name}\": Probe(\n        args=#{args},\n        more=#{more},\n    ),"
  end
end
