# frozen_string_literal: true

require "digest"
require "rbconfig"
require_relative "../abi"
require_relative "elf"
require_relative "private_group"
require_relative "refused"

module Probescope
  module Host
    # The file of a library as bpftrace is to read it, which does so as root and reads all of its
    # notes.
    module Library
      # Of its bytes so many count. A library is 1.4 MB.
      MAX_DIGESTED = 16 << 20
      PROVIDER = "probescope"
      # fstatfs(2). A file system in user space says of its files' owners what it likes.
      FSTATFS = {"x86_64" => 138, "aarch64" => 44}.freeze
      FUSE = 0x65735546
      TRUST = "--trust, where you trust it"
      MOST_DIGESTS = 1024

      # Whose files a bpftrace for several processes may read: root's, and those of the user who
      # runs the command, also through sudo. The helper forgets its environment once it has begun.
      TRUSTED_USERS = [0, Process.uid, *(ENV["SUDO_UID"]&.to_i if Process.uid.zero?)].uniq.freeze

      @digests = {}

      module_function

      # How many arguments each of these probes has for a program, at least: {name => number}.
      def arguments(probes)
        probes.to_h do |name|
          definition = ABI::PROBES.fetch(name.to_sym)
          [name, definition[:more].empty? ? definition[:args].size : 6]
        end
      end

      # [what tells two library files apart, an open File]. Their devices do not: one file in a
      # layer below several overlay mounts shows a device for each of them, and yet it is one file
      # for the kernel's probes. wanted: {name of a probe => number of its arguments}. users: whose
      # files are trusted, nil for everybody's. Raises Refused.
      def open(file, wanted, users)
        file.open do |io|
          check_trust(file, io, users) if users
          check_notes(io, wanted)
          [file.id.last, digest(io), io.dup]
        end
      rescue EOFError
        raise Refused.malformed("its library is no ELF file")
      end

      # A file that was changed has another time of change.
      def digest(io)
        stat = io.stat
        @digests.clear if @digests.size > MOST_DIGESTS
        id = [stat.dev, stat.ino, stat.size, stat.ctime]
        @digests[id] ||= Digest::SHA256.hexdigest(io.pread(MAX_DIGESTED, 0))
      end

      # A program that uses more arguments than there are is no program for bpftrace.
      def check_notes(io, wanted)
        Elf.new(io).probes.each do |probe|
          least = wanted[probe.name] if probe.provider == PROVIDER
          next if least.nil? || probe.arguments >= least

          raise Refused.malformed("the probe #{probe.name} of its library has #{probe.arguments} arguments " \
                                  "and not #{least}")
        end
      end

      # Nobody but these users may write to the file, nor put another one in its place.
      def check_trust(file, io, users)
        raise untrusted(file, "lies in a file system of FUSE") if in_user_space?(io)

        why = writable(io.stat, users)
        raise untrusted(file, why) if why
        return if file.deleted? || !file.path.start_with?("/")

        above(file).each do |path|
          why = writable(File.lstat("/proc/#{file.pid}/root#{path}"), users)
          raise untrusted(file, "lies in #{path}, which #{why}") if why
        end
      rescue Errno::ENOENT, Errno::ENOTDIR
        nil # another file lies there now
      end

      # Each folder above a file, "/" too.
      def above(file)
        names = file.path.split("/")[1...-1]
        Array.new(names.size + 1) { |i| "/#{names.first(i).join("/")}" }
      end

      # How another one than these users may write to it, or nil. In a folder like /tmp nobody
      # removes what is another's.
      def writable(stat, users)
        return "belongs to user #{stat.uid}" unless users.include?(stat.uid)

        if PrivateGroup.writable_by_others?(stat, users) && !(stat.directory? && stat.sticky?)
          "may be written to by others than its owner"
        end
      end

      def untrusted(file, why)
        path = file.path.dup.force_encoding(Encoding::UTF_8).scrub
        Refused.new(:untrusted, "process #{file.pid} is left out: its library #{path} #{why}", TRUST)
      end

      def in_user_space?(io)
        found = "\0".b * 256
        # As a string it may hold no zero.
        syscall(FSTATFS.fetch(RbConfig::CONFIG["host_cpu"]), io.fileno, [found].pack("p").unpack1("J"))
        found.unpack1("q") == FUSE
      rescue SystemCallError # which is an answer of such a file system, too
        true
      end
    end
  end
end
