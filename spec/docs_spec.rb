# frozen_string_literal: true

require_relative "../rakelib/documents"
require_relative "../rakelib/help_texts"
require_relative "../rakelib/schema_generator"
require_relative "../rakelib/site"

# The documents' links resolve, and their commands are valid. `rake docs:check` also runs the
# commands.
RSpec.describe "The documents" do
  def read(path) = File.read(File.join(Support::ROOT, path))

  # Returns {page => result of the block} without empty results.
  def by_page(pages = Documents.pages)
    pages.to_h { |page| [page, yield(page)] }.reject { |_, found| found.empty? }
  end

  it "have links that resolve, also to headings, and well-formed external ones" do
    expect(by_page { |page| Documents.broken_links(page) }).to eq({})
  end

  # A "text" after `spec/...` or `tests/...` must be part of the name of a test in that file.
  it "name tests that exist: SECURITY.md" do
    named = read("SECURITY.md").scan(%r{`((?:spec|tests|ext)/[^`\s]+)`,?((?:[ ,]*"[^"]+")*)})
    missing = named.flat_map do |path, names|
      next [path] unless File.exist?(File.join(Support::ROOT, path))

      text = File.directory?(File.join(Support::ROOT, path)) ? "" : read(path)
      names.scan(/"([^"]+)"/).flatten.reject { |name| text.include?(name) }.map { |name| "#{path}: #{name}" }
    end
    expect(missing).to eq([])
  end

  # `rake docs:runs` renews the outputs that are marked for it.
  head = /^\w+ of (?:process|\d+ processes) .*, [\d.]+ s, [\d.]+ % CPU.*\n/
  times = /\Afrom \d\d:\d\d:\d\d\.\d{3} to \d\d:\d\d:\d\d\.\d{3}/

  it "show tables with their whole head" do
    without = by_page do |page|
      text = read(page)
      text.to_enum(:scan, head).map { text[Regexp.last_match.end(0)..] }.grep_v(times)
    end
    expect(without).to eq({})
  end

  # {command => {heading => [kind, key, "optional"?]}}
  columns = YAML.safe_load(File.read(File.join(Support::ROOT, SchemaGenerator::SOURCE))).fetch("commands")
                .filter_map { |name, command| [name, command["table"]["columns"]] if command["table"] }.to_h

  # [[place, command, [heading, ...]], ...] for each table of a page. Columns may stand before those
  # of the command: which process, which request.
  def tables(page)
    commands = Documents.blocks(page).flat_map { |block| block.commands.map { |one| [block.place, one] } }
    commands.filter_map do |place, command|
      headings = command.output[/^[A-Z][A-Z0-9]*(?: [A-Z0-9]+)*(?: {2,}[A-Z][A-Z0-9 ]*)+$/] or next
      words = Documents.invocations_in(command.line).last
      [place, words[words[1] == "trace" ? 2 : 1], headings.split(/ {2,}/) - %w[PID REQUEST]] if words
    end
  end

  it "show tables with the columns that schemas.yml has, each command in one at least" do
    shown = Documents.kept.flat_map { |page| tables(page) }.select { |_, command| columns.key?(command) }
    wrong = shown.filter_map do |place, command, headings|
      wanted = columns[command].filter_map do |heading, (_, _, optional)|
        heading if optional.nil? || headings.include?(heading)
      end
      "#{place}: #{command} has #{wanted.join(", ")}" unless headings == wanted
    end
    expect(wrong).to be_empty, wrong.join("\n")
    expect(columns.keys - shown.map { |_, command| command }).to eq([])
  end

  it "have a date and a commit for each figure of performance.md" do
    sections = read("docs/performance.md").split(/^(?=## )/).drop(1)
    dated = /\A## .*\n\nMeasured on \d{4}-\d\d-\d\d, (?:on|written down in) commit \h{7}/
    expect(sections.grep_v(dated).map { |section| section.lines.first }).to eq([])
  end

  describe "are found:" do
    kept = Documents.pages.grep_v(%r{\Adocs/decisions/})

    it "docs/index.md links each page below docs" do
      linked = Documents.links("docs/index.md").map { |link| "docs/#{link.sub(/#.*/, "")}" }
      expect(kept.grep(%r{\Adocs/}) - linked - ["docs/index.md"]).to eq([])
    end

    it "mkdocs.yml lists each page, and no other" do
      expect(Site.listed).to match_array([*kept, "docs/decisions/index.md"])
    end

    it "README.md is short" do
      expect(read("README.md").lines.size).to be <= 140
    end
  end

  describe "show commands" do
    it "only in blocks of kind `console`, each with its setup or a reason for not running it" do
      elsewhere = by_page(Documents.kept) { |page| Documents.commands_elsewhere(page) }
      unsaid = Documents.kept.flat_map { |page| Documents.blocks(page) }.reject do |block|
        block.run? || (block.word && !block.said.empty?)
      end
      expect([elsewhere, unsaid.map(&:place)]).to eq([{}, []])
    end

    it "with existing programs and subcommands" do
      blocks = Documents.kept.flat_map { |page| Documents.blocks(page) }.select(&:run?)
      expect(blocks.filter_map(&:program).reject { |program| File.exist?(File.join(Support::ROOT, program)) })
        .to eq([])
      expect(blocks.map(&:commands)).not_to include([])
    end

    it "with options that the commands have", :slow do
      expect(by_page { |page| Documents.invocations(page).filter_map { |words| complaint(words) } }).to eq({})
    end

    it "with options that the commands have, also in the commands' own help" do
      of_wheel = HelpTexts.wheel.values.map do |help|
        help["examples"].gsub(/(?<= )(?=probescope (?!trace|attach))/, "venv/bin/")
      end
      texts = HelpTexts.gem.values + of_wheel
      lines = texts.flat_map { |text| Documents.lines_with_commands(text) }
      expect(lines.flat_map { |line| Documents.invocations_in(line) }.filter_map { |words| complaint(words) })
        .to eq([])
    end
  end

  # Returns the complaint about ["venv/bin/probescope", "trace", "hot", "-p", "4711"], or nil.
  def complaint(words)
    program, command, *arguments = words
    of_wheel = program.include?("venv/") || %w[trace attach].include?(command)
    known = of_wheel ? HelpTexts.options_of_wheel : HelpTexts.options_of_gem
    # `probescope --version`, or a placeholder for a command
    return if command == "help" || command.match?(/[^a-z]/)
    return "#{words.join(" ")}: no such command" unless known.key?(command)

    # The application's own words follow.
    arguments = arguments.take_while { |word| word.start_with?("-") && word != "--" } if command == "run"
    wrong = arguments.grep(/\A--?[a-z]/).map { |word| word.sub(/=.*/, "") } - known[command] -
            (command == "run" ? %w[-m -c] : [])
    "#{words.join(" ")}: no #{wrong.join(", ")}" if wrong.any?
  end

  describe "list every environment variable:" do
    sources = Dir["{lib,ext,python,exe,bin,packaging}/**/*", "setup.py", "Dockerfile", "examples/systemd/*",
                  "noxfile.py", "rakelib/test*", base: Support::ROOT]
    sources = sources.select do |path|
      File.file?(File.join(Support::ROOT, path)) && !path.match?(/\.(so|o|pyc|bundle)\z/)
    end
    text = sources.to_h do |path|
      [path, File.binread(File.join(Support::ROOT, path)).force_encoding("UTF-8").scrub]
    end
    # Patterns for reading a variable in C, Ruby, Python, make and sh, and for names that can only
    # be variables.
    reading = /getenv\(|ENV(?:\.\w+\??)?[\[(]|os\.environ(?:\.\w+)?[\[(]|environment(?:\.\w+)?[\[(]/
    reads = /#{reading}"([A-Za-z][A-Za-z0-9_]+)"/
    shell = /\$\{([A-Z][A-Z0-9_]+):?[-=]/
    named = /\b((?:PROBESCOPE|OTEL)_[A-Z0-9_]*[A-Z0-9])\b/
    # Constants of C, names of mappings, and prefixes of names.
    no_variables = %w[PROBESCOPE_VERSION OTEL_CTX OTEL_EXPORTER_OTLP OTEL_PYTHON_CONTEXT LANG]

    let(:read_somewhere) do
      text.values
          .flat_map { |source| [reads, shell, named].flat_map { |pattern| source.scan(pattern).flatten } }
          .uniq - no_variables
    end
    let(:listed) do
      cells = read("docs/reference/environment.md").scan(/^\| (`[^|]*) \|/).flatten
      cells.flat_map { |cell| cell.scan(/`(\w+)`/) }.flatten.uniq
    end

    it "each that the sources read is in docs/reference/environment.md" do
      expect((read_somewhere - listed).sort).to eq([])
    end

    it "each in docs/reference/environment.md is read", :slow do
      all = text.values.join
      # Names of OpenTelemetry variables with a form for each signal are composed in the code.
      expect(
        listed.reject { |name| all.match?(/\b#{name}\b|["_]#{name.delete_prefix("OTEL_EXPORTER_OTLP_")}"/) }
      ).to eq([])
    end
  end
end
