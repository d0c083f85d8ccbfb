# frozen_string_literal: true

# What the documents point to is there.
RSpec.describe "The documents" do
  def documents = Dir["{*,docs/**/*,examples/*/*}.md", base: Support::ROOT]
  def read(path) = File.read(File.join(Support::ROOT, path))

  # As GitHub names the anchor of a heading.
  def anchors(text)
    text.gsub(/^```.*?^```/m, "").scan(/^#+ (.*)$/).map { |(title)| title.downcase.gsub(/[^\w\- ]/, "").tr(" ", "-") }
  end

  it "have relative links that resolve, headings included" do
    broken = documents.flat_map do |document|
      read(document).gsub(/^```.*?^```/m, "").scan(/\]\(([^)\s]+)\)/).flatten.grep_v(/\A[a-z]+:/).reject do |link|
        path, anchor = link.split("#", 2)
        target = path.to_s.empty? ? document : File.join(File.dirname(document), path)
        full = File.join(Support::ROOT, target)
        File.exist?(full) && (anchor.nil? || anchors(File.read(full)).include?(anchor))
      end.map { |link| "#{document}: #{link}" }
    end
    expect(broken).to eq([])
  end

  it "are found: the guide lists each of its chapters" do
    missing = Dir.children(File.join(Support::ROOT, "docs/guide")).reject { |name| read("docs/guide.md").include?("(guide/#{name})") }
    expect(missing).to eq([])
  end
end
