# frozen_string_literal: true

require_relative "elf"
require_relative "library"
require_relative "mappings"
require_relative "opened"
require_relative "refused"

module Probescope
  module Tracing
    # Finds the C function for `probescope on uprobe:FILE:SYMBOL` in a file whose code a process maps.
    # Runs in the child that reads foreign processes (Foreign). FILE is compared, and the mapped file
    # is opened: a link or a file that is replaced meanwhile changes nothing.
    module CFunction
      module_function

      # name: the file's whole path or its name, as bytes. users: the users whose files are trusted;
      # nil trusts all. Returns [[device, inode], MappedFile#id, path, an open File]. Raises Refused.
      def find(pid, name, symbol, users)
        file = mapped(pid, name)
        file.open do |io|
          stat = io.stat
          # The process may have mapped another file at that address meanwhile.
          if stat.ino.to_s != file.id.last
            raise Refused.new(:other,
                              "process #{pid} maps #{shown(name)} no more")
          end

          Library.check_trust(file, io, users) if users
          check(Elf.new(io), name, symbol)
          [[stat.dev, stat.ino], file.id, path(file), io.dup]
        end
      rescue EOFError
        raise Refused.malformed("#{shown(name)} is no ELF file that can be read")
      end

      # The MappedFile that the user means.
      def mapped(pid, name)
        files = Mappings.files(pid)
        found = if name.start_with?("/")
                  with_path(pid, files, name)
                else
                  files.select do |file|
                    base(file) == name
                  end
                end
        return found.first if found.size == 1

        if found.empty?
          raise Refused.new(:other, "process #{pid} maps no code of a file #{shown(name)}",
                            "grep r-x /proc/#{pid}/maps")
        end
        raise Refused.new(:other, "process #{pid} maps #{found.size} files #{shown(name)}",
                          "give the whole path: uprobe:#{shown(path(found.first))}:SYMBOL")
      end

      # The file at that path in the process's root, by device and inode; else the one that was
      # mapped from that path.
      def with_path(pid, files, name)
        wanted = Opened.identity(pid, name)
        same = files.select { |file| wanted && file.id.last == wanted.last.to_s && identity(file) == wanted }
        same.any? ? same.first(1) : files.select { |file| plain(file.path) == name }
      end

      def identity(file)
        file.open { |io| [io.stat.dev, io.stat.ino] }
      rescue SystemCallError
        nil
      end

      def check(elf, name, symbol)
        found = elf.functions(symbol)
        if found.empty?
          raise Refused.new(:other, "#{shown(name)} has no function #{symbol} in its symbol tables",
                            "nm -D FILE lists those that other files may call")
        end
        if found.any? { |one| one.type == Elf::INDIRECT }
          raise Refused.new(:other, "#{symbol} of #{shown(name)} has several versions, of which the loader " \
                                    "chooses one for each processor (IFUNC)",
                            "name a function that it calls, or that calls it")
        end
        return if found.map(&:address).uniq.one?

        raise Refused.new(:other,
                          "#{shown(name)} has #{found.size} functions #{symbol}, and bpftrace finds only one",
                          "name a function that it calls, or that calls it")
      end

      def base(file) = plain(file.path).rpartition("/").last
      # The kernel appends this to the path of a file that was deleted or replaced.
      def plain(path) = path.delete_suffix(" (deleted)".b)
      def path(file) = plain(file.path).dup.force_encoding(Encoding::UTF_8).scrub
      def shown(name) = name.dup.force_encoding(Encoding::UTF_8).scrub[0, 200]
    end
  end
end
