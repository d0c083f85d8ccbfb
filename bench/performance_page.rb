# frozen_string_literal: true

require_relative "../spec/support/paths"

# docs/performance.md, of which a benchmark in Ruby has a section of its own: from a line `<!-- bench/NAME.rb -->` to one
# `<!-- end of bench/NAME.rb -->`.
module PerformancePage
  PATH = File.join(Support::ROOT, "docs/performance.md")

  module_function

  # The section as it stands there, or "". script: "bench/NAME.rb".
  def section(script) = File.read(PATH)[pattern(script)].to_s

  # Prints the section and puts it in the place of the one before, else at the end.
  def write(script, section)
    text = File.read(PATH)
    File.write(PATH, text.match?(pattern(script)) ? text.sub(pattern(script)) { section } : "#{text}\n#{section}")
    puts section
  end

  def pattern(script) = /^<!-- #{Regexp.escape(script)} -->\n.*^<!-- end of #{Regexp.escape(script)} -->\n/m
end
