# frozen_string_literal: true

require_relative "capabilities"
require_relative "error"

module Probescope
  module Host
    # Programs of this machine that may run with privilege. They are looked for in the system's own
    # folders, never in PATH. Each file, folder and link on the way has to be root's, and nobody
    # else may write to it.
    module Tool
      FOLDERS = %w[/usr/local/sbin /usr/local/bin /usr/sbin /usr/bin /sbin /bin].freeze
      # The environment of what runs with privilege.
      ENVIRONMENT = {"PATH" => "/usr/sbin:/usr/bin:/sbin:/bin", "LANG" => "C.UTF-8"}.freeze
      # In a user namespace files of the machine's root may be nobody's; nothing has privilege there
      # (Privilege).
      OWNERS = Capabilities.initial_namespace? ? [0].freeze : [0, 65_534].freeze
      # As many as the kernel follows.
      MOST_LINKS = 40

      module_function

      # Absolute path of the first one that is root's alone; nil where there is none of that name.
      # Raises Error where somebody else than root could put another program in the place of each of
      # them.
      def find(name)
        found = FOLDERS.map { |folder| File.join(folder, name) }
                       .select { |file| File.file?(file) && File.executable?(file) }
        return if found.empty?

        found.find { |path| weakness(path).nil? } or
          raise Error.new("#{found.first} is not run with privilege: #{weakness(found.first)}",
                          "install #{name} from the system's packages, or make it root's: " \
                          "chown root, chmod go-w")
      end

      # Why what lies there may be another's: "/opt/x belongs to user 1000". nil where it is root's
      # alone.
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

      # Every folder, link and file that the kernel looks at on its way to an absolute path.
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
