# frozen_string_literal: true

require_relative "release/files"

# The command and its helper as a Debian package:
# docs/decisions/176-a-package-whose-helper-is-roots.md.
module Deb
  ROOT = File.expand_path("..", __dir__)
  STAGE = File.join(ROOT, "tmp/deb")
  FILE = File.join(ROOT, "pkg/probescope_#{Probescope::VERSION}_all.deb")
  HOME = "usr/lib/probescope"
  # {file of the checkout => its place below usr/share/doc/probescope}
  DOCUMENTS = {"README.md" => "README.md", "SECURITY.md" => "SECURITY.md", "CHANGELOG.md" => "changelog",
               "LICENSE" => "copyright", "packaging/deb/sudoers" => "examples/sudoers",
               "examples/systemd/probescope-otel.service" => "examples/probescope-otel.service"}.freeze

  extend Rake::FileUtilsExt

  module_function

  # source: the directory with the files of the checkout.
  def build(source = ROOT)
    @source = source
    rm_rf STAGE
    stage
    mkdir_p File.dirname(FILE)
    # xz, independent of the system's default. Ubuntu's default is zstd, which Debian 11 cannot
    # read.
    sh({"SOURCE_DATE_EPOCH" => Release.epoch.to_s}, "dpkg-deb", "--root-owner-group", "-Zxz", "--build",
       STAGE, FILE)
  end

  def stage
    Dir.glob("{lib/**/*.rb,providers/*.bt,page/page.gen.html}", base: @source).each do |path|
      put(path, "#{HOME}/#{path}")
    end
    put("packaging/deb/helper", "#{HOME}/helper", 0o755)
    # The system's Ruby, even if a user's PATH begins with another one.
    put("exe/probescope", "#{HOME}/exe/probescope", 0o755) { |text| text.sub(/\A#!.*/, "#!/usr/bin/ruby") }
    mkdir_p "#{STAGE}/usr/bin"
    ln_s "../lib/probescope/exe/probescope", "#{STAGE}/usr/bin/probescope"
    DOCUMENTS.each { |from, to| put(from, "usr/share/doc/probescope/#{to}") }
    put("packaging/deb/control", "DEBIAN/control") { |text| text.sub("VERSION", Probescope::VERSION) }
    # Modes and times do not depend on the umask and the clock.
    Release.level(STAGE)
    FileUtils.touch(Dir.glob("#{STAGE}/**/*"), mtime: Time.at(Release.epoch), nocreate: true)
  end

  # Copies a file. The block may change its text.
  def put(from, to, mode = 0o644)
    path = File.join(STAGE, to)
    FileUtils.mkdir_p(File.dirname(path))
    text = File.binread(File.join(@source, from))
    File.binwrite(path, block_given? ? yield(text) : text)
    File.chmod(mode, path)
  end
end

desc "Build pkg/probescope_VERSION_all.deb: the command, and a helper that a rule of sudo can name " \
     "(needs dpkg-deb)"
task(:deb) { Deb.build }
