# frozen_string_literal: true

require "digest"
require "erb"
require "yaml"

# Generates page/page.gen.html: the page of a recording, in one file, without the recording. `record`,
# `convert` and `diff` replace the line PageGenerator::DATA with the data (lib/probescope/profile/page.rb).
#
# The page's Content-Security-Policy names the hash of each script and style, so nothing else runs,
# whatever a recording has in its names. An inline script's type decides whether it runs, and the data is
# of a type that does not.
class PageGenerator
  SOURCE = "page/page.html.erb"
  PATH = "page/page.gen.html"
  VENDOR = "page/vendor"
  DATA = "<!--DATA-->"
  # In this order: data.js makes the object that the others add to, and main.js begins.
  SCRIPTS = %w[data tree summary timeline tables flame main].freeze
  # In page.css: the place of the declarations of dark.css.
  DARK = "--dark: here;"
  # The style that d3-flame-graph adds to the document when it is run.
  ADDED_STYLE = /document\.createElement\("style"\);\w+\.textContent=`([^`]*)`/

  Error = Class.new(StandardError)

  def self.write(root)
    File.write(File.join(root, PATH), new(root).text)
  end

  def initialize(root)
    @root = root
  end

  def text
    html = ERB.new(read(SOURCE)).result(binding)
    raise Error, "#{SOURCE} needs the line #{DATA} once" unless html.scan(DATA).one?

    html
  end

  def vendored = YAML.safe_load(read("#{VENDOR}/vendor.yml"))

  private

  def read(path) = File.read(File.join(@root, path), encoding: Encoding::UTF_8)

  # The texts of the scripts of the page.
  def scripts
    @scripts ||= begin
      libraries = vendored.filter_map { |package| package["file"] && File.basename(package["file"]) }
      paths = libraries.map { |name| "#{VENDOR}/#{name}" } + SCRIPTS.map { |name| "page/js/#{name}.js" }
      paths.map do |path|
        read(path).tap { |text| check(path, text) }
      end
    end
  end

  # In a script, these are read as markup.
  def check(path, text)
    found = text[%r{</script|<!--}i]
    raise Error, "#{path} has #{found.inspect}, which ends a script" if found
  end

  def style = @style ||= read("page/page.css").gsub(DARK) { read("page/dark.css") }
  def licences = read("#{VENDOR}/LICENSES")

  def policy
    added = scripts.filter_map { |text| text[ADDED_STYLE, 1] }
    raise Error, "d3-flame-graph adds #{added.size} styles" unless added.one?

    ["default-src 'none'", "script-src #{hashes(scripts)}", "style-src #{hashes([style, *added])}",
     "img-src data:", "base-uri 'none'", "form-action 'none'"].join("; ")
  end

  def hashes(texts) = texts.map { |text| "'sha256-#{Digest::SHA256.base64digest(text)}'" }.join(" ")
end
