# frozen_string_literal: true

require "json"
require "yaml"
require_relative "generated_comments"

# Generates constants of gem and wheel from providers/tracing.yml. Each public method returns the
# text of one generated file.
class TracingGenerator
  SOURCE = "providers/tracing.yml"
  OUTPUTS = {
    "lib/probescope/tracing/bounds.rb" => :ruby_bounds,
    "lib/probescope/tracing/display.rb" => :ruby_display,
    "lib/probescope/tracing/lost.rb" => :ruby_lost,
    "lib/probescope/tracing/runners.rb" => :ruby_runners,
    "lib/probescope/tracing/complaints.rb" => :ruby_complaints,
    "python/probescope/command/bounds.py" => :python_bounds,
    "python/probescope/command/display.py" => :python_display,
    "python/probescope/command/lost.py" => :python_lost,
    "python/probescope/command/runners.py" => :python_runners,
    "python/probescope/command/complaints.py" => :python_complaints
  }.freeze
  UNITS = {nil => 0, "KiB" => 10, "MiB" => 20}.freeze
  BOUNDS = "Bounds for the data that are read from a process and from bpftrace."
  DISPLAY = "What of an answer is shown, and how."
  LOST = "What a trace could not count."
  RUNNERS = "Packages that run an application which is not their own."
  COMPLAINTS = "Messages of bpftrace, with their meaning and the next step."
  # The most characters of a string in one line of code.
  WIDTH = 100

  def self.write(root)
    generator = new(File.read(File.join(root, SOURCE)))
    OUTPUTS.each { |path, method| File.write(File.join(root, path), generator.public_send(method)) }
  end

  def initialize(yaml)
    definition = YAML.safe_load(yaml)
    @bounds, @display, @lost, @uncounted = definition.fetch_values("bounds", "display", "lost", "uncounted")
    @runners = definition.fetch("runners")
    complaints = definition.fetch("complaints")
    @container, @noise, @meanings = complaints.fetch_values("container", "noise", "meanings")
  end

  def ruby_bounds = ruby("# #{BOUNDS}\nmodule Bounds\n#{indent(constants(@bounds, 6))}\nend")
  def ruby_display = ruby("# #{DISPLAY}\nmodule Display\n#{indent(constants(@display, 6))}\nend")
  def python_bounds = python(BOUNDS, constants(@bounds, 0))
  def python_display = python(DISPLAY, constants(@display, 0))

  def ruby_runners = ruby("# #{RUNNERS}\nRUNNERS = %w[\n#{indent(lines(@runners.join(" ")))}\n].freeze")

  def python_runners
    names = @runners.map { |name| "#{string(name)}," }.join("\n")
    python(RUNNERS, "RUNNERS = {\n#{indent(indent(names))}\n}")
  end

  def ruby_lost
    maps = fields("map").map { |name, map| "#{name}: #{string(map)}" }
    warnings = fields("warning").map { |name, text| "#{name}: #{string(text.gsub(/{(\w+)}/, '%<\1>d'))}" }
    uncounted = @uncounted.map { |name, text| "#{name}: #{string(text.gsub(/{(\w+)}/, '%<\1>s'))}" }
    ruby(<<~RUBY.chomp)
      # #{LOST}
      module Lost
        # {field in JSON => map of the program}
        MAPS = {
      #{indent(indent(maps.join(",\n")))}
        }.freeze
        # {field => warning}, with the number and the keys that would be enough
        WARNINGS = {
      #{indent(indent(warnings.join(",\n")))}
        }.freeze
        # {loss that is not counted => warning}
        UNCOUNTED = {
      #{indent(indent(uncounted.join(",\n")))}
        }.freeze
      end
    RUBY
  end

  def python_lost
    maps, warnings = %w[map warning].map do |what|
      entries(fields(what))
    end
    python(LOST, <<~PYTHON.chomp)
      # {field in JSON: map of the program}
      MAPS = {
      #{indent(indent(maps))}
      }
      # {field: warning}, with the number and the keys that would be enough
      WARNINGS = {
      #{indent(indent(warnings))}
      }
      # {loss that is not counted: warning}
      UNCOUNTED = {
      #{indent(indent(entries(@uncounted)))}
      }
    PYTHON
  end

  def ruby_complaints
    rows = @meanings.map do |row|
      "[/#{row["pattern"]}/,\n #{string(row["meaning"])},\n #{step(row)}]"
    end.join(",\n")
    ruby(<<~RUBY.chomp)
      # #{COMPLAINTS}
      module Complaints
        CONTAINER = #{pieces(@container).join(" \\\n              ")}
        # The first pattern that matches counts.
        MEANINGS = [
      #{indent(indent(rows))}
        ].freeze
        # Lines that bpftrace also prints when nothing is wrong.
        NOISE = /#{@noise}/
      end
    RUBY
  end

  def python_complaints
    rows = @meanings.map do |row|
      parts = ["re.compile(r\"#{row["pattern"]}\"),", "#{string(row["meaning"])},", "#{step(row)},"]
      "(\n#{indent(indent(parts.join("\n")))}\n),"
    end
    python(COMPLAINTS, <<~PYTHON.chomp)
      import re
      from typing import Pattern, Tuple

      CONTAINER = (
      #{indent(indent(pieces(@container).join("\n")))}
      )
      # The first pattern that matches counts.
      MEANINGS: Tuple[Tuple[Pattern[str], str, str], ...] = (
      #{indent(indent(rows.join("\n")))}
      )
      # Lines that bpftrace also prints when nothing is wrong.
      NOISE = re.compile(r"#{@noise}")
    PYTHON
  end

  private

  def ruby(text)
    <<~RUBY
      # frozen_string_literal: true

      # Generated from #{SOURCE} by `rake generate`. Do not edit.
      module Probescope
        module Tracing
      #{indent(indent(text))}
        end
      end
    RUBY
  end

  def python(about, text)
    <<~PYTHON
      """#{about}

      Generated from #{SOURCE} by `rake generate`. Do not edit.
      """

      from __future__ import annotations

      #{text}
    PYTHON
  end

  # Returns the entries of a dict.
  def entries(texts) = texts.map { |name, text| "#{string(name)}: #{string(text)}," }.join("\n")

  def fields(what) = @lost.transform_values { |row| row[what] }.compact

  # Both languages write a constant alike. column: where the generated file has them.
  def constants(rows, column)
    rows.map do |row|
      about = "#{row["about"][0].upcase}#{row["about"][1..]}."
      "#{GeneratedComments.hash(about, column: column)}\n#{row["name"]} = #{number(row)}"
    end.join("\n")
  end

  # Returns a number such as "12 << 20".
  def number(row)
    figure, unit = row["value"].to_s.split
    shift = UNITS.fetch(unit)
    shift.zero? ? figure : "#{figure} << #{shift}"
  end

  def step(row) = row["step"] == "container" ? "CONTAINER" : string(row["step"])

  # Returns a string literal, which is the same in both languages.
  def string(text) = JSON.generate(text)

  # Returns string literals of at most WIDTH characters, which the language concatenates.
  def pieces(text)
    text.scan(/.{1,#{WIDTH}}(?: |\z)/).map { |piece| string(piece) }
  end

  # The same words, in lines of at most WIDTH characters.
  def lines(text) = text.scan(/\S.{0,#{WIDTH - 10}}(?= |\z)/).join("\n")

  def indent(text) = text.gsub(/^(?=.)/, "  ")
end
