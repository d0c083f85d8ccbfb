# frozen_string_literal: true

require "fileutils"
require "yaml"
require_relative "documents"

# The pages as a site, by MkDocs (docs/decisions/216-a-site-of-mkdocs.md). Pages link to files outside of docs/, so MkDocs is given a copy
# of what is linked, in which every link stands as it stands in the repository.
module Site
  CONFIG = "mkdocs.yml"
  FOLDER = "tmp/site"
  SOURCE = "tmp/site-source"
  # What a browser would fetch from elsewhere to show a page.
  FOREIGN = /<(?:script|img|iframe)[^>]+src="https?:[^"]*"|<link(?=[^>]+stylesheet)[^>]+href="https?:[^"]*"/

  module_function

  def build
    abort "docs:site: mkdocs is missing (Debian and Ubuntu: apt install mkdocs)" unless system("command -v mkdocs >/dev/null")

    copy
    system("mkdocs", "build", "--quiet", "--strict", "--clean", exception: true)
    faults = Dir["#{FOLDER}/**/*.html"].flat_map { |path| foreign(path) + lost_anchors(path) }
    abort "docs:site: #{faults.join("\n")}" if faults.any?

    puts "docs:site: #{FOLDER}/index.html"
  end

  def copy
    FileUtils.rm_rf(SOURCE)
    (Documents.pages + linked_files).uniq.each do |path|
      FileUtils.mkdir_p(File.dirname("#{SOURCE}/#{path}"))
      FileUtils.cp(path, "#{SOURCE}/#{path}")
    end
    File.write("#{SOURCE}/docs/decisions/index.md", decisions)
  end

  # What pages point to that is no page; of a folder what is in it.
  def linked_files
    Documents.pages.flat_map do |page|
      links = Documents.links(page).grep_v(/\A(?:[a-z]+:|#)/)
      paths = links.map { |link| File.expand_path(link.sub(/#.*/, ""), File.dirname(page)).delete_prefix("#{Dir.pwd}/") }
      files = paths.flat_map { |path| File.directory?(path) ? Dir["#{path}/*"] : [path] }
      files.select { |path| File.file?(path) && !path.end_with?(".md") }
    end
  end

  # What GitHub shows of a folder.
  def decisions
    lines = Dir["docs/decisions/*.md"].sort.map do |path|
      title = File.open(path, &:readline).sub(/\A# (?:\d+: )?/, "").strip
      "- [#{File.basename(path)[/\A\d+/]}](#{File.basename(path)}) #{title}"
    end
    "# Decisions\n\n#{lines.join("\n")}\n"
  end

  def foreign(path) = File.read(path).scan(FOREIGN).map { |tag| "#{path} loads from elsewhere: #{tag}" }

  # MkDocs names the anchors of headings by its own rule, which GitHub's mostly is.
  def lost_anchors(path)
    File.read(path).scan(/href="([^":]*)#([^"]+)"/).filter_map do |file, anchor|
      target = file.empty? ? path : File.join(File.dirname(path), file)
      "#{path}: no anchor ##{anchor} in #{file}" unless !File.file?(target) || File.read(target).include?("id=\"#{anchor}\"")
    end
  end

  # The pages that mkdocs.yml lists.
  def listed = YAML.safe_load_file(File.join(Documents::ROOT, CONFIG))["nav"].to_s.scan(/"([^"]+\.md)"/).flatten
end
