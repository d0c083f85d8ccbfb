# frozen_string_literal: true

require "digest"
require "open3"
require "tmpdir"
require "yaml"
require_relative "page_generator"

# The libraries of the page, from npm.
module PageVendor
  FOLDER = File.join(File.expand_path("..", __dir__), PageGenerator::VENDOR)

  extend Rake::FileUtilsExt

  module_function

  def fetch
    licences = YAML.load_file("#{FOLDER}/vendor.yml").map do |package|
      Dir.mktmpdir { |dir| licence(package, unpack(package, dir)) }
    end
    File.write("#{FOLDER}/LICENSES", licences.join("\n#{"-" * 80}\n\n"))
  end

  # The folder with the files of the package, whose integrity is the one that vendor.yml has.
  def unpack(package, dir)
    name = "#{package.fetch("name")}@#{package.fetch("version")}"
    sh "npm", "pack", "--silent", "--pack-destination", dir, name, out: File::NULL
    archive = Dir["#{dir}/*.tgz"].first
    integrity = "sha512-#{Digest::SHA512.base64digest(File.binread(archive))}"
    raise "#{name} has integrity #{integrity}" unless integrity == package.fetch("integrity")

    sh "tar", "-x", "-f", archive, "-C", dir
    "#{dir}/package"
  end

  # Copies the file, and returns the text of the licence.
  def licence(package, folder)
    copy("#{folder}/#{package["file"]}", package.fetch("sha256")) if package["file"]
    "#{package["name"]} #{package["version"]} (#{package["licence"]})\n\n#{File.read("#{folder}/LICENSE")}"
  end

  def copy(file, sha256)
    found = Digest::SHA256.file(file).hexdigest
    raise "#{file} has SHA-256 #{found}" unless found == sha256

    cp file, FOLDER
  end
end

namespace :page do
  desc "Fetch the libraries of the page by npm, and compare them with page/vendor/vendor.yml"
  task(:vendor) { PageVendor.fetch }

  desc "Make the images of the page in docs/img, as root with bpftrace and Chromium; look at each one"
  task :screenshots do
    # The images show paths: of a folder that is the same on each machine.
    home = "/srv/freight-desk"
    make = 'mount --bind . "$1" && cd "$1" && exec "$0" -r ./rakelib/screenshots -e Screenshots.make'
    mkdir_p home
    begin
      Bundler.with_unbundled_env { sh "unshare", "--mount", "sh", "-c", make, RbConfig.ruby, home }
    ensure
      rmdir home
    end
  end
end
