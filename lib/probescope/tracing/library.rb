# frozen_string_literal: true

require "digest"
require "rbconfig"
require_relative "../abi"
require_relative "elf"
require_relative "private_group"
require_relative "refused"

module Probescope
  module Tracing
    # Checks the file of a library before bpftrace reads it. bpftrace reads the file as root, with
    # all of its notes.
    module Library
      # How many bytes of the file are digested. A library is 1.4 MB.
      MAX_DIGESTED = 16 << 20
      PROVIDER = "probescope"
      # fstatfs(2). A file system in user space (FUSE) reports whatever owners it chooses.
      FSTATFS = {"x86_64" => 138, "aarch64" => 44}.freeze
      FUSE = 0x65735546
      TRUST = "--trust, where you trust it"
      MOST_DIGESTS = 1024

      # The users whose files a bpftrace for several processes may read: root, and the user who runs
      # the command, also through sudo. Read when the file is loaded, because the helper then clears
      # its environment.
      TRUSTED_USERS = [0, Process.uid, *(ENV["SUDO_UID"]&.to_i if Process.uid.zero?)].uniq.freeze

      @digests = {}

      module_function

      # How many arguments of each of these probes a program may use: {name => number}.
      def arguments(probes)
        probes.to_h do |name|
          definition = ABI::PROBES.fetch(name.to_sym)
          [name, definition[:more].empty? ? definition[:args].size : 6]
        end
      end

      # Returns [an identity of the library file, an open File]. The identity does not contain the
      # device: a file in a lower layer of several overlay mounts has a different device in each
      # mount, but is one file for the kernel's uprobes. wanted: {name of a probe => number of its
      # arguments}. users: the users whose files are trusted; nil trusts all. Raises Refused.
      def open(file, wanted, users)
        file.open do |io|
          check_trust(file, io, users) if users
          check_notes(io, wanted)
          [file.id.last, digest(io), io.dup]
        end
      rescue EOFError
        raise Refused.malformed("its library is no ELF file")
      end

      # Digests are cached; the ctime in the key detects a changed file.
      def digest(io)
        stat = io.stat
        @digests.clear if @digests.size > MOST_DIGESTS
        id = [stat.dev, stat.ino, stat.size, stat.ctime]
        @digests[id] ||= Digest::SHA256.hexdigest(io.pread(MAX_DIGESTED, 0))
      end

      # bpftrace refuses a program that uses more arguments than a probe has.
      def check_notes(io, wanted)
        Elf.new(io).probes.each do |probe|
          least = wanted[probe.name] if probe.provider == PROVIDER
          next if least.nil? || probe.arguments >= least

          raise Refused.malformed("the probe #{probe.name} of its library has #{probe.arguments} arguments " \
                                  "and not #{least}")
        end
      end

      # Only these users may be able to write to the file, or to replace it.
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
        nil # another file is at that path now
      end

      # Each folder above a file, including "/".
      def above(file)
        names = file.path.split("/")[1...-1]
        Array.new(names.size + 1) { |i| "/#{names.first(i).join("/")}" }
      end

      # How a user other than these may write to the file, or nil. In a sticky folder such as /tmp,
      # users cannot remove each other's files.
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
        # Passed by address, because a String argument of syscall may contain no zero byte.
        syscall(FSTATFS.fetch(RbConfig::CONFIG["host_cpu"]), io.fileno, [found].pack("p").unpack1("J"))
        found.unpack1("q") == FUSE
      rescue SystemCallError # a FUSE file system may answer so, too
        true
      end
    end
  end
end
