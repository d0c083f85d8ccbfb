# frozen_string_literal: true

require "rexml/document"

# What a run of RSpec has in its JUnit file. failed: "./spec/x_spec.rb # what the example says".
JUnit = Struct.new(:examples, :failed, :pending) do
  def self.read(path)
    cases = REXML::Document.new(File.read(path)).get_elements("//testcase")
    failed = cases.select { |example| example.elements["failure"] || example.elements["error"] }
    names = failed.map { |example| "#{example.attributes["file"]} # #{example.attributes["name"]}" }
    new(cases.size, names, cases.count { |example| example.elements["skipped"] })
  end

  def +(other) = JUnit.new(examples + other.examples, failed + other.failed, pending + other.pending)

  # As RSpec says it.
  def to_s
    counts = [number(examples, "example"), number(failed.size, "failure")]
    counts << "#{pending} pending" if pending.positive?
    counts.join(", ")
  end

  def number(count, word) = "#{count} #{word}#{"s" if count != 1}"
end
