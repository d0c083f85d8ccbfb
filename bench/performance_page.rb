# frozen_string_literal: true

require_relative "../spec/support/paths"

# docs/performance.md. Each benchmark in Ruby has its own section. It begins with a line
# `<!-- bench/NAME.rb -->` and ends with a line `<!-- end of bench/NAME.rb -->`.
module PerformancePage
  PATH = File.join(Support::ROOT, "docs/performance.md")

  module_function

  # Returns the present section, or "". script: "bench/NAME.rb".
  def section(script) = File.read(PATH)[pattern(script)].to_s

  # Returns the text with a line below each heading that has none yet: the date of the measurement,
  # and the commit.
  def dated(text)
    command = ["git", "-C", Support::ROOT, "rev-parse", "--short", "HEAD"]
    commit = IO.popen(command, err: File::NULL, &:read).strip
    line = "Measured on #{Time.now.strftime("%Y-%m-%d")}, on commit #{commit}."
    text.gsub(/^(## .*\n)\n(?!Measured on )/) { "#{Regexp.last_match[1]}\n#{line}\n\n" }
  end

  # Prints the section, and replaces the old one in the page, or appends it.
  def write(script, section)
    text = File.read(PATH)
    section = dated(section)
    text = text.match?(pattern(script)) ? text.sub(pattern(script)) { section } : "#{text}\n#{section}"
    File.write(PATH, text)
    puts section
  end

  def pattern(script) = /^<!-- #{Regexp.escape(script)} -->\n.*^<!-- end of #{Regexp.escape(script)} -->\n/m
end
