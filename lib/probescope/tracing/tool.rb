# frozen_string_literal: true

require_relative "capabilities"
require_relative "error"

module Probescope
  module Tracing
    # Finds programs that may run with privilege, in the system's own folders and never in PATH.
    # Each file, folder and link on the way to a program must belong to root, and only root may
    # write to it.
    module Tool
      FOLDERS = %w[/usr/local/sbin /usr/local/bin /usr/sbin /usr/bin /sbin /bin].freeze
      # The environment of a program that runs with privilege.
      ENVIRONMENT = {"PATH" => "/usr/sbin:/usr/bin:/sbin:/bin", "LANG" => "C.UTF-8"}.freeze
      # In a user namespace, files of the machine's root may appear as nobody's. Nothing has
      # privilege there (Privilege).
      OWNERS = Capabilities.initial_namespace? ? [0].freeze : [0, 65_534].freeze
      # The kernel's limit.
      MOST_LINKS = 40

      module_function

      # Absolute path of the first program that only root can change; nil where there is no such
      # program. Raises Error where another user could replace every one of them.
      def find(name)
        found = FOLDERS.map { |folder| File.join(folder, name) }
                       .select { |file| File.file?(file) && File.executable?(file) }
        return if found.empty?

        found.find { |path| weakness(path).nil? } or
          raise Error.new("#{found.first} is not run with privilege: #{weakness(found.first)}",
                          "install #{name} from the system's packages, or make it root's: " \
                          "chown root, chmod go-w")
      end

      # Why another user may be able to change the file: "/opt/x belongs to user 1000". nil where
      # only root can.
      def weakness(path)
        way(path).each do |place|
          stat = File.lstat(place)
          return "#{place} belongs to user #{stat.uid}" unless OWNERS.include?(stat.uid)
          return "others than its owner may write to #{place}" if !stat.symlink? && stat.mode.anybits?(0o022)
        end
        nil
      rescue SystemCallError => e
        e.message
      end

      # Every folder, link and file that the kernel resolves in an absolute path.
      def way(path)
        left = path.split("/")
        here = ""
        passed = ["/"]
        links = 0
        while (name = left.shift)
          next if ["", "."].include?(name)
          next here = File.dirname(here).delete_suffix("/") if name == ".."

          passed << (place = "#{here}/#{name}")
          next here = place unless File.symlink?(place)
          raise Errno::ELOOP, path if (links += 1) > MOST_LINKS

          target = File.readlink(place)
          here = "" if target.start_with?("/")
          left = target.split("/") + left
        end
        passed
      end
    end
  end
end
