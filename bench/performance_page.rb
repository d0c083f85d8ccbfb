# frozen_string_literal: true

require_relative "../spec/support/paths"

# docs/performance.md. Each benchmark in Ruby has its own section, or several. A section begins with
# a line `<!-- bench/NAME.rb -->` and ends with a line `<!-- end of bench/NAME.rb -->`. Everything
# outside of these lines is written by hand, and kept. performance_page.py has the dates for the
# benchmarks in Python.
module PerformancePage
  PATH = File.join(Support::ROOT, "docs/performance.md")
  DATED = /^Measured on .*?(?=\n\n)/m

  module_function

  # Returns the present section, or "". name: "bench/NAME.rb", or "bench/NAME.rb:PART".
  def section(name, path: PATH) = read(path)[pattern(name)].to_s

  # Returns the text with a line below each heading that has none yet: the date of the measurement,
  # and the commit.
  def dated(text)
    text.gsub(/^(## .*\n)\n(?!Measured on )/) { "#{Regexp.last_match[1]}\n#{line}\n\n" }
  end

  # Returns the line for a section whose figures are all of today.
  def line = "Measured on #{today}, on commit #{commit}."

  # Returns the date of a column or a row, with the commit: "2026-11-26, commit 1a2b3c4d".
  def date = "#{today}, commit #{commit}"

  # Returns the line below the heading of a section whose columns or rows (each) have dates of their
  # own. The line of the present section stays, because it dates the columns or
  # rows that have none.
  def dated_line(name, each)
    present = section(name)[DATED] || line
    own = "except for #{each} with a date of their own"
    present.split.join(" ").include?(own) ? present : "#{present.chomp(".")}, #{own}."
  end

  # Prints the section, and replaces the present one in the page, or appends it.
  def write(name, section, path: PATH)
    text = read(path)
    section = dated(section)
    text = if text.match?(pattern(name))
             text.sub(pattern(name)) { section }
           else
             [text, section].reject(&:empty?).join("\n")
           end
    File.write(path, text)
    puts section
  end

  def read(path) = File.exist?(path) ? File.read(path) : ""
  def today = Time.now.strftime("%Y-%m-%d")

  def commit(checkout = Support::ROOT)
    command = ["git", "-C", checkout, "rev-parse", "--short=8", "HEAD"]
    IO.popen(command, err: File::NULL, &:read).strip
  end

  def pattern(name) = /^<!-- #{Regexp.escape(name)} -->\n.*^<!-- end of #{Regexp.escape(name)} -->\n/m
end
