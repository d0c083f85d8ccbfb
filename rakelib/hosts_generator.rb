# frozen_string_literal: true

require "json"
require "yaml"
require_relative "generated_comments"

# Generates constants of both hosts from providers/hosts.yml. Each public method returns the text of
# one generated file.
class HostsGenerator
  SOURCE = "providers/hosts.yml"
  OUTPUTS = {
    "lib/probescope/host/bounds.rb" => :ruby_bounds,
    "lib/probescope/host/complaints.rb" => :ruby_complaints,
    "python/probescope/command/bounds.py" => :python_bounds,
    "python/probescope/command/complaints.py" => :python_complaints
  }.freeze
  UNITS = {nil => 0, "KiB" => 10, "MiB" => 20}.freeze
  BOUNDS = "Bounds for the data that are read from a process."
  COMPLAINTS = "Messages of bpftrace, with their meaning and the next step."
  # The most characters of a string in one line of code.
  WIDTH = 100

  def self.write(root)
    generator = new(File.read(File.join(root, SOURCE)))
    OUTPUTS.each { |path, method| File.write(File.join(root, path), generator.public_send(method)) }
  end

  def initialize(yaml)
    definition = YAML.safe_load(yaml)
    @bounds = definition.fetch("bounds")
    complaints = definition.fetch("complaints")
    @container, @noise, @meanings = complaints.fetch_values("container", "noise", "meanings")
  end

  def ruby_bounds
    ruby("# #{BOUNDS}\nmodule Bounds\n#{indent(constants(column: 6))}\nend")
  end

  def python_bounds
    python(BOUNDS, constants(column: 0))
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
        module Host
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

  # column: where the host's file has them.
  def constants(column:)
    @bounds.map do |bound|
      about = "#{bound["about"][0].upcase}#{bound["about"][1..]}."
      "#{GeneratedComments.hash(about, column: column)}\n#{bound["name"]} = #{number(bound)}"
    end.join("\n")
  end

  # Returns a number such as "12 << 20".
  def number(bound)
    figure, unit = bound["value"].to_s.split
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

  def indent(text) = text.gsub(/^(?=.)/, "  ")
end
