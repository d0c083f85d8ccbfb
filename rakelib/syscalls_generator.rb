# frozen_string_literal: true

require "yaml"

# Generates the tables of system calls and errors of gem and wheel from providers/syscalls.yml. Each
# public method but #calls returns the text of one generated file.
class SyscallsGenerator
  SOURCE = "providers/syscalls.yml"
  OUTPUTS = {
    "lib/probescope/tracing/syscalls.rb" => :ruby,
    "python/probescope/command/syscalls.py" => :python
  }.freeze
  MACHINES = %w[x86_64 aarch64].freeze
  KINDS = %w[file file_lock socket timer child lock ready memory other].freeze
  MADE = "Generated from #{SOURCE} by `rake generate`. Do not edit.".freeze

  Error = Class.new(StandardError)

  # numbers: {machine => number}. kind: one of KINDS. bytes: whether it returns a number of bytes.
  # path: the number of the argument with the path, or nil.
  Call = Struct.new(:name, :numbers, :kind, :bytes, :path, keyword_init: true)

  # calls: Calls. errors: {name => number}.
  attr_reader :calls, :errors

  def self.write(root)
    generator = new(File.read(File.join(root, SOURCE)))
    OUTPUTS.each { |path, method| File.write(File.join(root, path), generator.public_send(method)) }
  end

  def initialize(yaml)
    definition = YAML.safe_load(yaml)
    @calls = definition.fetch("calls").map { |row| parse(row) }
    @errors = definition.fetch("errors")
    MACHINES.each do |machine|
      twice = of(machine).map(&:first).tally.select { |_, times| times > 1 }.keys
      raise Error, "#{machine} has several calls with the number #{twice.join(", ")}" if twice.any?
    end
  end

  # The numbers of the calls of a machine whose path is in this argument.
  def with_path(machine, argument)
    calls.select { |call| call.path == argument }.filter_map { |call| call.numbers[machine] }.sort
  end

  def ruby
    <<~RUBY
      # frozen_string_literal: true

      # #{MADE}
      module Probescope
        module Tracing
          # The system calls of Linux, and its errors.
          module Syscalls
            # {machine, as `uname -m` prints it => {number => name}}
            NUMBERS = {
      #{MACHINES.map { |machine| ruby_numbers(machine) }.join(",\n")}
            }.freeze
            # Calls that return the number of bytes that they have read or written.
            BYTES = %w[
      #{filled(calls.select(&:bytes).map(&:name), " ", 8)}
            ].freeze
            # {call => what it waits for}; other calls are "other".
            KINDS = {
      #{filled(kinds.map { |name, kind| "\"#{name}\" => \"#{kind}\"" }, ", ", 8)}
            }.freeze
            # {number => name}. Those from 512 on never reach the application.
            ERRORS = {
      #{filled(errors.map { |name, number| "#{number} => \"#{name}\"" }, ", ", 8)}
            }.freeze
          end
        end
      end
    RUBY
  end

  def python
    <<~PYTHON
      """The system calls of Linux, and its errors.

      #{MADE}
      """

      from __future__ import annotations

      from typing import Dict

      # {machine, as `uname -m` prints it: {number: name}}
      NUMBERS: Dict[str, Dict[int, str]] = {
      #{MACHINES.map { |machine| python_numbers(machine) }.join("\n")}
      }
      # Calls that return the number of bytes that they have read or written.
      BYTES = frozenset(
          {
      #{calls.select(&:bytes).map { |call| "        \"#{call.name}\"," }.join("\n")}
          }
      )
      # {call: what it waits for}; other calls are "other".
      KINDS = {
      #{kinds.map { |name, kind| "    \"#{name}\": \"#{kind}\"," }.join("\n")}
      }
      # {number: name}. Those from 512 on never reach the application.
      ERRORS = {
      #{errors.map { |name, number| "    #{number}: \"#{name}\"," }.join("\n")}
      }
    PYTHON
  end

  private

  def parse(row)
    unknown = row.keys - ["name", *MACHINES, "kind", "bytes", "path"]
    raise Error, "#{row["name"]}: unknown field #{unknown.first}" if unknown.any?
    raise Error, "#{row["name"]}: unknown kind #{row["kind"]}" unless KINDS.include?(row["kind"])

    Call.new(name: row.fetch("name"), numbers: row.slice(*MACHINES), kind: row["kind"],
             bytes: row.fetch("bytes", false), path: row["path"])
  end

  # [[number, name], ...]
  def of(machine)
    calls.filter_map { |call| [call.numbers[machine], call.name] if call.numbers[machine] }.sort
  end

  def kinds = calls.reject { |call| call.kind == "other" }.map { |call| [call.name, call.kind] }

  def ruby_numbers(machine)
    rows = of(machine).map { |number, name| "#{number} => \"#{name}\"" }
    "        \"#{machine}\" => {\n#{filled(rows, ", ", 10)}\n        }.freeze"
  end

  def python_numbers(machine)
    rows = of(machine).map { |number, name| "        #{number}: \"#{name}\"," }
    "    \"#{machine}\": {\n#{rows.join("\n")}\n    },"
  end

  # Lines of at most 100 characters.
  def filled(words, between, indent)
    lines = words.each_with_object([+""]) do |word, all|
      all << +"" if all.last.size + between.size + word.size > 98 - indent
      all.last << between unless all.last.empty?
      all.last << word
    end
    lines.map { |line| "#{" " * indent}#{line}" }.join("#{between.rstrip}\n")
  end
end
