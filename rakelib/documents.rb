# frozen_string_literal: true

require "shellwords"

# The contents of the pages: links, headings, and commands. A block of kind `console` shows
# commands, each on a line with `$ `. A comment on the line before the block says what `rake
# docs:check` does with it:
#
#   <!-- docs:run -->                                   runs the commands, one after the other
#   <!-- docs:run with examples/deepstack.rb -->        the same, while that program runs: its pid
#                                                       replaces each PID
#   <!-- docs:run with examples/hotfuncs.rb, exits with 1 -->
#                                                       the last command must exit with that status
#   <!-- docs:run with examples/deepstack.rb, retaken -->
#                                                       `rake docs:runs` puts a new output into
#                                                       the page
#   <!-- docs:run in a checkout -->                     the folder is a copy of this checkout,
#                                                       without build results
#   <!-- docs:not-run REASON -->                        does nothing; the task prints the reason
#
# The blocks of a page share a folder and the programs that they started.
module Documents
  ROOT = File.expand_path("..", __dir__)
  # A clause in the comment of a block. Parsed: {"with" => "examples/deepstack.rb", "exits with" =>
  # "1", "retaken" => nil}.
  CLAUSE = /\A(with|exits with|retaken|in a checkout)(?: (\S+))?\z/
  BLOCK = /^(?:<!-- docs:(?<word>run|not-run) ?(?<said>.*?) ?-->\n)?```console\n(?<text>.*?)^```$/m

  Command = Struct.new(:line, :output, keyword_init: true) do
    # The command keeps running during the next commands.
    def background? = line.match?(/&\s*(#.*)?\z/)
  end

  Block = Struct.new(:page, :number, :word, :said, :text, keyword_init: true) do
    def run? = word == "run"
    def place = "#{page}:#{number}"

    def clauses
      said.split(", ").to_h do |clause|
        clause.match(CLAUSE)&.captures || raise("#{place}: unknown clause #{clause.inspect}")
      end
    end

    def program = clauses["with"]
    def retaken? = run? && clauses.key?("retaken")
    def status = clauses.fetch("exits with", "0").to_i

    # A command that ends in a backslash continues on the next line.
    def commands
      text.scan(/^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)/).map do |line, output|
        Command.new(line: line, output: output)
      end
    end
  end

  module_function

  def pages = Dir["{*,docs/**/*,examples/*/*}.md", base: ROOT]

  # The pages for readers of this version, without the records of decisions and of runs.
  def kept
    records = %r{\A(docs/(decisions|ci)/|CHANGELOG|docs/(truth|performance|packages)\.md)}
    pages.reject { |page| page.match?(records) }
  end

  def read(page) = File.read(File.join(ROOT, page))

  # The anchors that GitHub gives to headings.
  def anchors(text)
    headings = text.gsub(/^```.*?^```/m, "").scan(/^#+ (.*)$/)
    headings.map { |(title)| title.downcase.gsub(/[^\w\- ]/, "").tr(" ", "-") }
  end

  def links(page) = read(page).gsub(/^```.*?^```/m, "").scan(/\]\(([^)\s]+)\)/).flatten

  # The broken links of a page. Only the form of external links is checked, without a network.
  def broken_links(page)
    links(page).reject { |link| link.match?(/\A[a-z]+:/) ? well_formed?(link) : resolves?(page, link) }
  end

  def well_formed?(link) = link.match?(%r{\Ahttps://[a-z0-9.-]+\.[a-z]+(/[^\s<>"]*)?\z}i)

  def resolves?(page, link)
    path, anchor = link.split("#", 2)
    full = File.join(ROOT, path.empty? ? page : File.join(File.dirname(page), path))
    File.exist?(full) && (anchor.nil? || anchors(File.read(full)).include?(anchor))
  end

  def blocks(page)
    text = read(page)
    text.to_enum(:scan, BLOCK).map do
      match = Regexp.last_match
      number = text[0...match.begin(:text)].count("\n")
      Block.new(page: page, number: number, word: match[:word], said: match[:said].to_s, text: match[:text])
    end
  end

  # Lines with `$ ` in a block of another kind, which nothing would run.
  def commands_elsewhere(page)
    others = read(page).scan(/^```(\w*)\n(.*?)^```$/m).reject { |kind, _| kind == "console" }
    others.flat_map { |_, text| text.scan(/^\$ .*/) }
  end

  # Each `probescope COMMAND ...` of a page, in a block or in a sentence, as words that begin with
  # the program's name.
  def invocations(page)
    text = read(page)
    blocks = text.scan(/^```\w*\n(.*?)^```$/m).flat_map do |(block)|
      lines_with_commands(block.gsub("\\\n", " "))
    end
    paragraphs = text.gsub(/^```.*?^```/m, "").split(/\n\n+/)
    spans = paragraphs.flat_map { |paragraph| paragraph.scan(/`([^`]+)`/).flatten }
    (blocks + spans).flat_map { |line| invocations_in(line.tr("\n", " ")) }
  end

  # The commands in a console, in the "try:" line of an error, and in the examples of a help text,
  # where an explanation follows the command.
  def lines_with_commands(text)
    lines = text.scan(/^(?:\$ | {2,}try: | {2,}(?=\S*probescope |sudo ))(.*)/).flatten
    lines.map { |line| line.sub(/\S\K {3,}.*/, "") }
  end

  # [["venv/bin/probescope", "trace", "hot", "-p", "4711"], ...] for a line of shell.
  def invocations_in(line)
    line.scan(%r{(?<!-n )(?<!\S)["'(]?((?:\S*/)?probescope [a-z][^|;&>#]*)}).map do |(command)|
      Shellwords.split(command)
    rescue ArgumentError # the command stands within quotes
      command.delete("'\"").split
    end
  end
end
