# frozen_string_literal: true

require "digest"
require "fileutils"
require "open3"
require "tmpdir"
require_relative "../../lib/probescope/version"

# Makes the published files, for rake release:build.
module Release
  ROOT = File.expand_path("../..", __dir__)
  PKG = "#{ROOT}/pkg".freeze
  WORK = "#{ROOT}/tmp/release".freeze
  VERSION = Probescope::VERSION

  module_function

  # Seconds since 1970 that replace every time in a package: the time of the last commit.
  def epoch
    @epoch ||= Integer(ENV["SOURCE_DATE_EPOCH"] ||
                       Open3.capture2("git", "-C", ROOT, "log", "-1", "--format=%ct").first)
  end

  # Copies the files of the checkout to a directory. Modes and times do not depend on the umask and
  # the clock.
  def copy_checkout(to)
    files, = Open3.capture2("git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    files.split("\0").each do |path|
      from = "#{ROOT}/#{path}"
      next unless File.file?(from)

      FileUtils.mkdir_p(File.dirname("#{to}/#{path}"))
      FileUtils.cp(from, "#{to}/#{path}")
    end
    level(to)
  end

  def level(directory)
    Dir.glob("#{directory}/**/*", File::FNM_DOTMATCH).each do |path|
      next if File.symlink?(path)

      File.chmod(File.directory?(path) || File.executable?(path) ? 0o755 : 0o644, path)
      File.utime(epoch, epoch, path)
    end
  end

  # Packs the directory into a tar file that depends only on its contents.
  def tar(directory, file, folder: File.basename(directory), compress: %w[gzip -9n])
    names = %W[tar --create --sort=name --mtime=@#{epoch} --owner=0 --group=0 --numeric-owner --format=ustar
               --mode=u=rwX,go=rX --directory #{directory} --transform=s,^\\.,#{folder}, .]
    statuses = Open3.pipeline(names, [*compress, {out: file}])
    raise "#{file} cannot be made" unless statuses.all?(&:success?)
  end
end
