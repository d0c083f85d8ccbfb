# frozen_string_literal: true

# What the documents point to is there.
RSpec.describe "The documents" do
  def documents = Dir["{*,docs/**/*,examples/*/*}.md", base: Support::ROOT]
  def read(path) = File.read(File.join(Support::ROOT, path))

  # As GitHub names the anchor of a heading.
  def anchors(text)
    text.gsub(/^```.*?^```/m, "").scan(/^#+ (.*)$/).map { |(title)| title.downcase.gsub(/[^\w\- ]/, "").tr(" ", "-") }
  end

  def resolves?(document, link)
    path, anchor = link.split("#", 2)
    full = File.join(Support::ROOT, path.empty? ? document : File.join(File.dirname(document), path))
    File.exist?(full) && (anchor.nil? || anchors(File.read(full)).include?(anchor))
  end

  it "have relative links that resolve, headings included" do
    broken = documents.flat_map do |document|
      links = read(document).gsub(/^```.*?^```/m, "").scan(/\]\(([^)\s]+)\)/).flatten.grep_v(/\A[a-z]+:/)
      links.reject { |link| resolves?(document, link) }.map { |link| "#{document}: #{link}" }
    end
    expect(broken).to eq([])
  end

  # "text" after `spec/...` or `tests/...` is part of what a test in that file is called.
  it "name tests that exist: SECURITY.md" do
    missing = read("SECURITY.md").scan(%r{`((?:spec|tests|ext)/[^`\s]+)`,?((?:[ ,]*"[^"]+")*)}).flat_map do |path, names|
      next [path] unless File.exist?(File.join(Support::ROOT, path))

      text = File.directory?(File.join(Support::ROOT, path)) ? "" : read(path)
      names.scan(/"([^"]+)"/).flatten.reject { |name| text.include?(name) }.map { |name| "#{path}: #{name}" }
    end
    expect(missing).to eq([])
  end

  # `rake docs:runs` takes those again that say what they are of.
  head = /^\w+ of (?:process|\d+ processes) .*, [\d.]+ s, [\d.]+ % CPU.*\n/
  times = /\Afrom \d\d:\d\d:\d\d\.\d{3} to \d\d:\d\d:\d\d\.\d{3}/

  it "show tables with all of their head" do
    without = documents.to_h do |document|
      text = read(document)
      [document, text.to_enum(:scan, head).count { !text[Regexp.last_match.end(0)..].match?(times) }]
    end
    expect(without.select { |_, tables| tables.positive? }).to eq({})
  end

  it "say of each figure of performance.md when it was measured, and of which commit" do
    sections = read("docs/performance.md").split(/^(?=## )/).drop(1)
    dated = /\A## .*\n\nMeasured on \d{4}-\d\d-\d\d, (?:on|written down in) commit \h{7}/
    expect(sections.grep_v(dated).map { |section| section.lines.first }).to eq([])
  end

  it "are found: the guide lists each of its chapters" do
    index = read("docs/guide.md")
    expect(Dir.children(File.join(Support::ROOT, "docs/guide")).reject { |name| index.include?("(guide/#{name})") }).to eq([])
  end
end
