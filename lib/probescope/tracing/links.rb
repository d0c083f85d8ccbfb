# frozen_string_literal: true

require "fileutils"
require "securerandom"
require_relative "error"

module Probescope
  module Tracing
    # A folder with one link for each distinct library file. A bpftrace that reads `bpftrace PROGRAM
    # '/run/probescope/X/*.so'` reaches every process that maps one of these files. A link leads to
    # a file that is open in this process (/proc/PID/fd/N). So it also reaches a file that was
    # deleted or lies in another mount namespace, and no process can replace the file after Library
    # has checked it. Two links to one file would count every event twice. Only the owner may enter
    # the folder: a user who could add a link would choose what root's bpftrace reads.
    class Links
      # A user who may trace without being root has a folder of its own.
      BASE = Process.euid.zero? ? "/run/probescope" : "/run/probescope-#{Process.euid}"
      LOCK = "lock"

      # Raises Error when the folder cannot be made.
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

      # The pattern that bpftrace takes as the library.
      def pattern = "#{@path}/*.so"

      # file: an open File, which this object closes.
      def add(file)
        File.symlink("/proc/#{Process.pid}/fd/#{file.fileno}", File.join(@path, "#{@files.size}.so"))
        @files << file
      end

      # Makes a link to the file of a uprobe, which `pattern` does not match. file: as in #add. Returns
      # the link's path.
      def add_apart(file)
        @apart = file
        File.join(@path, "uprobe").tap { |path| File.symlink("/proc/#{Process.pid}/fd/#{file.fileno}", path) }
      end

      # Writes a file beside the links. Returns its path.
      def file(name, text) = File.join(@path, name).tap { |path| File.write(path, text, perm: 0o600) }

      # Removes the links, before new ones are made.
      def clear
        Dir.glob(pattern).each { |link| File.unlink(link) }
        @files.each(&:close).clear
      end

      def remove
        FileUtils.rm_rf(@path)
        [@lock, *@files, @apart].compact.each(&:close)
      end

      # Removes folders of killed runs, whose locks nobody holds any more.
      def self.sweep(base)
        Dir.children(base).each do |name|
          folder = File.join(base, name)
          lock = File.open(File.join(folder, LOCK), File::RDWR | File::NOFOLLOW)
          FileUtils.rm_rf(folder) if lock.flock(File::LOCK_EX | File::LOCK_NB)
        rescue SystemCallError # made or removed by another command just now
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

      # Takes the folder's lock. bpftrace does not inherit the lock, so the lock is free once the
      # helper has ended. Returns nil when another command's sweep took the lock between its
      # creation and flock(), and has removed the folder.
      def hold(folder)
        lock = File.open(File.join(folder, LOCK), File::RDWR | File::CREAT | File::EXCL, 0o600)
        lock.flock(File::LOCK_EX)
        return lock if File.exist?(lock.path)

        lock.close
      end
    end
  end
end
