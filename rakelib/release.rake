# frozen_string_literal: true

require_relative "release/files"
require_relative "release/gem_files"
require_relative "release/sbom"
require_relative "release/wheels"

module Release
  # What rake release:build leaves out, {what => reason}.
  def self.left_out
    always = {"Ruby 4.0" => "no suite of Debian or Ubuntu has it yet",
              "CPython without a GIL" => "Debian has none"}
    sysroots.each_with_object(always) do |one, all|
      one.left_out.each { |what, why| all["#{what}, #{one.arch.cpu}"] = why }
    end
  end

  def self.archs
    wanted = ENV.fetch("RELEASE_ARCHS", ARCHS.map(&:cpu).join(",")).split(",")
    ARCHS.select { |arch| wanted.include?(arch.cpu) }
  end

  def self.sysroots = archs.map { |arch| Sysroot.new(arch) }
  def self.wanted?(name) = ENV.fetch("RELEASE_ONLY", "source,gems,wheels,deb").split(",").include?(name)

  # Compiles for every Ruby and every CPython, and packages the results.
  def self.compile(arch, source)
    toolchain = Toolchain.new(arch, source)
    folder = "#{WORK}/#{arch.triplet}"
    debug = "#{WORK}/debug-#{arch.triplet}"
    if wanted?("gems")
      extensions = toolchain.sysroot.rubies.map { |version| RubyExtension.new(toolchain, version, source) }
      libraries = extensions.to_h { |one| [one.directory, toolchain.split(one.compile(folder), debug)] }
      Gems.native(source, arch, libraries)
    end
    if wanted?("wheels")
      toolchain.sysroot.pythons.each { |version| Wheels.new(toolchain, source).build(version, folder, debug) }
    end
    return unless wanted?("gems") && wanted?("wheels")

    tar(debug, "#{PKG}/probescope-#{VERSION}-debug-#{arch.triplet}.tar.xz",
        folder: "debug", compress: %w[xz -6 -T1])
  end
end

namespace :release do
  desc "Build everything that is published into pkg, with sums and an SBOM (on Debian 12; " \
       "RELEASE_ARCHS=x86_64, RELEASE_ONLY=gems,wheels,source,deb, RELEASE_FRESH=1: new headers)"
  task :build do
    rm_rf [Release::WORK, *Dir["#{Release::PKG}/*"]], verbose: false
    mkdir_p [Release::WORK, Release::PKG], verbose: false
    source = "#{Release::WORK}/source"
    Release.copy_checkout(source)
    Release::Gems.source(source) if Release.wanted?("source")
    Release.archs.each { |arch| Release.compile(arch, source) }
    Release::Wheels.sdist(source) if Release.wanted?("source")
    Deb.build(source) if Release.wanted?("deb")
    files = Dir["#{Release::PKG}/*"]
    Release::Sbom.write("#{Release::PKG}/probescope-#{Probescope::VERSION}.cdx.json", files, Release.sysroots)
    sums = Dir.children(Release::PKG).sort.map do |name|
      "#{Digest::SHA256.file("#{Release::PKG}/#{name}").hexdigest}  #{name}\n"
    end
    File.write("#{Release::PKG}/SHA256SUMS", sums.join)
    puts sums
    Release.left_out.each { |what, why| puts "left out: #{what}: #{why}" }
  end

  desc "Check the sums in pkg, and the bill of materials against the schema of CycloneDX (needs npm)"
  task :check do
    chdir(Release::PKG, verbose: false) { sh "sha256sum", "--check", "--quiet", "SHA256SUMS", verbose: false }
    Release::Sbom.check(Dir["#{Release::PKG}/*.cdx.json"].first)
    puts "release: the sums and the bill of materials are right"
  end
end
