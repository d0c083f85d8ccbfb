# frozen_string_literal: true

require "rexml/document"

# The results of a run of RSpec, from its JUnit file. failed: a text for each failed example,
# "./spec/x_spec.rb # description".
JUnit = Struct.new(:examples, :failed, :pending) do
  def self.read(path)
    cases = REXML::Document.new(File.read(path)).get_elements("//testcase")
    failed = cases.select { |example| example.elements["failure"] || example.elements["error"] }
    names = failed.map { |example| "#{example.attributes["file"]} # #{example.attributes["name"]}" }
    new(cases.size, names, cases.count { |example| example.elements["skipped"] })
  end

  def +(other) = JUnit.new(examples + other.examples, failed + other.failed, pending + other.pending)

  # Returns the totals in RSpec's form.
  def to_s
    counts = [number(examples, "example"), number(failed.size, "failure")]
    counts << "#{pending} pending" if pending.positive?
    counts.join(", ")
  end

  def number(count, word) = "#{count} #{word}#{"s" if count != 1}"
end
