# frozen_string_literal: true

require_relative "../lib/probescope/version"

# The command and its helper as a package of Debian: docs/decisions/176-a-package-whose-helper-is-roots.md.
module Deb
  ROOT = File.expand_path("..", __dir__)
  PACKAGING = File.join(ROOT, "packaging/deb")
  STAGE = File.join(ROOT, "tmp/deb")
  FILE = File.join(ROOT, "pkg/probescope_#{Probescope::VERSION}_all.deb")
  HOME = "usr/lib/probescope"
  # What each file of the checkout becomes.
  DOCUMENTS = {"README.md" => "README.md", "SECURITY.md" => "SECURITY.md", "CHANGELOG.md" => "changelog", "LICENSE" => "copyright",
               "packaging/deb/sudoers" => "examples/sudoers",
               "examples/systemd/probescope-otel.service" => "examples/probescope-otel.service"}.freeze

  extend Rake::FileUtilsExt

  module_function

  def build
    rm_rf STAGE
    stage
    mkdir_p File.dirname(FILE)
    sh "dpkg-deb", "--root-owner-group", "--build", STAGE, FILE
  end

  def stage
    Dir.glob("{lib/**/*.rb,providers/*.bt}", base: ROOT).each { |path| put(path, "#{HOME}/#{path}") }
    put("packaging/deb/helper", "#{HOME}/helper", 0o755)
    # A user's own Ruby need not have the gem of the tables.
    put("exe/probescope", "#{HOME}/exe/probescope", 0o755) { |text| text.sub(/\A#!.*/, "#!/usr/bin/ruby") }
    mkdir_p "#{STAGE}/usr/bin"
    ln_s "../lib/probescope/exe/probescope", "#{STAGE}/usr/bin/probescope"
    DOCUMENTS.each { |from, to| put(from, "usr/share/doc/probescope/#{to}") }
    put("packaging/deb/control", "DEBIAN/control") { |text| text.sub("VERSION", Probescope::VERSION) }
    # Whatever umask this was called with.
    Dir.glob("#{STAGE}/**/").each { |folder| File.chmod(0o755, folder) }
  end

  # The block may change the text.
  def put(from, to, mode = 0o644)
    path = File.join(STAGE, to)
    FileUtils.mkdir_p(File.dirname(path))
    text = File.binread(File.join(ROOT, from))
    File.binwrite(path, block_given? ? yield(text) : text)
    File.chmod(mode, path)
  end
end

desc "Build pkg/probescope_VERSION_all.deb: the command, and a helper that a rule of sudo can name (wants dpkg-deb)"
task(:deb) { Deb.build }
