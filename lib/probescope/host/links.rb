# frozen_string_literal: true

require "fileutils"
require "securerandom"
require_relative "error"

module Probescope
  module Host
    # A folder with one link for each distinct library file, for a bpftrace that is to reach all
    # processes that map one of them: `bpftrace PROGRAM '/run/probescope/X/*.so'`. A link leads to a
    # file that is open here (/proc/PID/fd/N), so it also reaches a file that is gone from the disk
    # or lies in another mount namespace, and no process can put another file in its place between
    # the look at it (Library) and bpftrace's. Two links to one file would count every event twice.
    # Only the owner may enter the folder: who could put a link into it would choose what root's
    # bpftrace reads.
    class Links
      # Whoever may trace without being root has a folder of its own.
      BASE = Process.euid.zero? ? "/run/probescope" : "/run/probescope-#{Process.euid}"
      LOCK = "lock"

      # Raises Error when there can be no such folder.
      def initialize(base = BASE)
        make(base)
        self.class.sweep(base)
        until @lock
          @path = File.join(base, SecureRandom.hex(8))
          Dir.mkdir(@path, 0o700)
          @lock = hold(@path)
        end
        @files = []
      rescue SystemCallError => e
        raise Error.new("cannot make a folder in #{base}: #{e.message}",
                        "tracing more than one process needs a writable /run")
      end

      # What bpftrace takes for the library.
      def pattern = "#{@path}/*.so"

      # file: open, which is ours from now on.
      def add(file)
        File.symlink("/proc/#{Process.pid}/fd/#{file.fileno}", File.join(@path, "#{@files.size}.so"))
        @files << file
      end

      # A file of that text beside the links; its path.
      def file(name, text) = File.join(@path, name).tap { |path| File.write(path, text, perm: 0o600) }

      # Before the links are made anew.
      def clear
        Dir.glob(pattern).each { |link| File.unlink(link) }
        @files.each(&:close).clear
      end

      def remove
        FileUtils.rm_rf(@path)
        [@lock, *@files].each(&:close)
      end

      # Removes what runs have left behind that were killed: nobody holds their lock any more.
      def self.sweep(base)
        Dir.children(base).each do |name|
          folder = File.join(base, name)
          lock = File.open(File.join(folder, LOCK), File::RDWR | File::NOFOLLOW)
          FileUtils.rm_rf(folder) if lock.flock(File::LOCK_EX | File::LOCK_NB)
        rescue SystemCallError # made or removed at this very moment
          nil
        ensure
          lock&.close
        end
      end

      private

      def make(base)
        Dir.mkdir(base, 0o700)
      rescue Errno::EEXIST
        found = File.lstat(base)
        return if found.directory? && found.owned? && (found.mode & 0o077).zero?

        raise Error.new("#{base} is not a folder that only its owner may enter", "rm -r #{base}")
      end

      # bpftrace does not inherit it, so it is free when the helper is gone. nil: another command's
      # sweep had the lock first, between its creation and flock(), and has removed the folder.
      def hold(folder)
        lock = File.open(File.join(folder, LOCK), File::RDWR | File::CREAT | File::EXCL, 0o600)
        lock.flock(File::LOCK_EX)
        return lock if File.exist?(lock.path)

        lock.close
      end
    end
  end
end
