# frozen_string_literal: true

require_relative "../spec/support/paths"

# docs/performance.md, of which a benchmark in Ruby has a section of its own: from a line `<!--
# bench/NAME.rb -->` to one `<!-- end of bench/NAME.rb -->`.
module PerformancePage
  PATH = File.join(Support::ROOT, "docs/performance.md")

  module_function

  # The section as it stands there, or "". script: "bench/NAME.rb".
  def section(script) = File.read(PATH)[pattern(script)].to_s

  # The text with a line below each heading that has none yet: when it was measured, and of which
  # commit.
  def dated(text)
    command = ["git", "-C", Support::ROOT, "rev-parse", "--short", "HEAD"]
    commit = IO.popen(command, err: File::NULL, &:read).strip
    line = "Measured on #{Time.now.strftime("%Y-%m-%d")}, on commit #{commit}."
    text.gsub(/^(## .*\n)\n(?!Measured on )/) { "#{Regexp.last_match[1]}\n#{line}\n\n" }
  end

  # Prints the section and puts it in the place of the one before, else at the end.
  def write(script, section)
    text = File.read(PATH)
    section = dated(section)
    text = text.match?(pattern(script)) ? text.sub(pattern(script)) { section } : "#{text}\n#{section}"
    File.write(PATH, text)
    puts section
  end

  def pattern(script) = /^<!-- #{Regexp.escape(script)} -->\n.*^<!-- end of #{Regexp.escape(script)} -->\n/m
end
