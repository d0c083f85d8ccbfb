# frozen_string_literal: true

require "fileutils"
require "yaml"
require_relative "documents"

# Builds the pages as a site with MkDocs (docs/decisions/216-a-site-of-mkdocs.md). Pages link to
# files outside of docs/, so MkDocs gets a copy of all linked files, in which the links are the same
# as in the repository.
module Site
  CONFIG = "mkdocs.yml"
  FOLDER = "tmp/site"
  SOURCE = "tmp/site-source"
  # Tags for which a browser would load something from another server.
  FOREIGN = /<(?:script|img|iframe)[^>]+src="https?:[^"]*"|<link(?=[^>]+stylesheet)[^>]+href="https?:[^"]*"/

  module_function

  def build
    unless system("command -v mkdocs >/dev/null")
      abort "docs:site: mkdocs is missing (Debian and Ubuntu: apt install mkdocs)"
    end

    copy
    system("mkdocs", "build", "--quiet", "--strict", "--clean", exception: true)
    faults = Dir["#{FOLDER}/**/*.html"].flat_map { |path| foreign(path) + lost_anchors(path) }
    abort "docs:site: #{faults.join("\n")}" if faults.any?

    puts "docs:site: #{FOLDER}/index.html"
  end

  def copy
    FileUtils.rm_rf(SOURCE)
    folders, files = linked.partition { |path| File.directory?(path) }
    (Documents.pages + files + folders.flat_map { |folder| files_of(folder) }).uniq.each do |path|
      FileUtils.mkdir_p(File.dirname("#{SOURCE}/#{path}"))
      FileUtils.cp(path, "#{SOURCE}/#{path}")
    end
    without_page = folders.reject { |folder| File.exist?("#{folder}/README.md") }
    without_page.each { |folder| File.write("#{SOURCE}/#{folder}/index.md", index(folder)) }
  end

  # Files and folders that pages link to.
  def linked
    paths = Documents.pages.flat_map do |page|
      links = Documents.links(page).grep_v(/\A(?:[a-z]+:|#)/)
      links.map do |link|
        File.expand_path(link.sub(/#.*/, ""), File.dirname(page)).delete_prefix("#{Dir.pwd}/")
      end
    end
    paths.uniq
  end

  def files_of(folder) = Dir["#{folder}/*"].select { |path| File.file?(path) }.sort

  # The list of files that GitHub shows for a folder, with the titles of pages.
  def index(folder)
    lines = files_of(folder).map do |path|
      title = File.open(path, &:readline).sub(/\A# (?:\d+: )?/, "").strip if path.end_with?(".md")
      "- [#{File.basename(path, ".md")}](#{File.basename(path)}) #{title}".strip
    end
    "# #{File.basename(folder).capitalize}\n\n#{lines.join("\n")}\n"
  end

  def foreign(path) = File.read(path).scan(FOREIGN).map { |tag| "#{path} loads from elsewhere: #{tag}" }

  # Anchors that the site lacks. MkDocs and GitHub name the anchors of headings by different rules,
  # which mostly agree.
  def lost_anchors(path)
    File.read(path).scan(/href="([^":]*)#([^"]+)"/).filter_map do |file, anchor|
      target = file.empty? ? path : File.join(File.dirname(path), file)
      found = !File.file?(target) || File.read(target).include?("id=\"#{anchor}\"")
      "#{path}: no anchor ##{anchor} in #{file}" unless found
    end
  end

  # The pages that mkdocs.yml lists.
  def listed
    navigation = YAML.safe_load_file(File.join(Documents::ROOT, CONFIG))["nav"]
    navigation.to_s.scan(/"([^"]+\.md)"/).flatten
  end
end
