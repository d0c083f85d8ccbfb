# frozen_string_literal: true

require_relative "error"

module Probescope
  module Tracing
    # Checks what the kernel supports. Each method returns a line for doctor, or raises Error with
    # the next step.
    class Kernel
      OLDEST = [4, 20].freeze
      # Where the kernel lists its tracepoints. Only root may enter the folders.
      EVENTS = %w[/sys/kernel/tracing/events /sys/kernel/debug/tracing/events].freeze

      # events: the folders that may list the tracepoints.
      def initialize(events = EVENTS)
        @events = events
      end

      def release = File.read("/proc/sys/kernel/osrelease").strip

      def version
        raise not_linux unless RUBY_PLATFORM.include?("linux")
        return "Linux #{release}" if (release.scan(/\d+/).first(2).map(&:to_i) <=> OLDEST) >= 0

        raise Error.new("Linux #{release} does not count the tracers of a probe",
                        "run it on Linux 4.20 or later")
      end

      def uprobes
        raise not_linux unless RUBY_PLATFORM.include?("linux")
        return "uprobes" if File.exist?("/sys/bus/event_source/devices/uprobe/type")

        raise Error.new("the kernel has no uprobes (/sys/bus/event_source/devices/uprobe is missing)",
                        "run a kernel with CONFIG_UPROBE_EVENTS=y, and mount sysfs on /sys " \
                        "where a container lacks it")
      end

      # Reads the list of mounts, because only root may enter the folder itself.
      def tracefs
        mounts = File.foreach("/proc/self/mounts").map(&:split)
        found = mounts.find { |_, point, type| type == "tracefs" && point == "/sys/kernel/tracing" } ||
                mounts.find { |_, point, type| type == "tracefs" && point == "/sys/kernel/debug/tracing" }
        return "tracefs on #{found[1]}" if found

        raise Error.new("tracefs is not mounted", "sudo mount -t tracefs tracefs /sys/kernel/tracing")
      end

      # names: "category:name". Raises Error for the first one that the kernel does not have. If
      # this user may not enter the folders, bpftrace itself reports what is missing.
      def tracepoints(names)
        folder = @events.find { |path| File.directory?(path) }
        return if names.empty? || (folder.nil? && @events.any? { |path| hidden?(path) })

        raise no_list if folder.nil?

        missing = names.find { |name| !File.directory?(File.join(folder, *name.split(":"))) }
        return unless missing

        raise Error.new("this kernel has no tracepoint #{missing}, without which these events are not known",
                        "run a kernel with CONFIG_FTRACE=y and CONFIG_FTRACE_SYSCALLS=y")
      end

      # The integer fields of a tracepoint, by the kernel's list. Raises Error where the kernel does
      # not have the tracepoint, or this user may not see it.
      def fields_of(category, name)
        folders = @events.map { |folder| File.join(folder, category, name) }
        path = folders.find { |folder| File.file?("#{folder}/id") }
        path ? integers(File.read("#{path}/format")) : raise(no_tracepoint("#{category}:#{name}"))
      rescue Errno::EACCES, Errno::EPERM
        raise Error.new("the kernel does not show this user its tracepoints", "run the command as root")
      end

      def btf
        File.exist?("/sys/kernel/btf/vmlinux") ? "BTF" : "no BTF: not needed by these programs"
      end

      # Raises Error for the first requirement of tracing that is missing.
      def check
        version
        uprobes
        tracefs
      end

      # A field of /sys/kernel/tracing/events/CATEGORY/NAME/format. Arrays, pointers and structs do
      # not match.
      INTEGER = /(?:unsigned |signed |const |volatile )*\w+(?: \w+)*/
      FIELD = /^\s+field:(#{INTEGER}) (\w+);\s*offset:\d+;\s*size:[1248];/
      NO_INTEGER = /\A(?:const |volatile )*(?:struct|union|enum|__data_loc|__rel_loc|float|double)\b/

      private

      def integers(format)
        found = format.scan(FIELD).reject do |type, name|
          type.match?(NO_INTEGER) || name.start_with?("common_")
        end
        found.map(&:last)
      end

      def no_list
        Error.new("this kernel lists no tracepoints (#{@events.first} is missing)",
                  "mount -t tracefs tracefs /sys/kernel/tracing, or run one with CONFIG_FTRACE=y")
      end

      def no_tracepoint(name)
        return no_list if @events.none? { |path| File.directory?(path) || hidden?(path) }
        return Error.new("the kernel does not show this user its tracepoints", "run the command as root") if
          @events.any? { |path| hidden?(path) }

        Error.new("this kernel has no tracepoint #{name}",
                  "ls /sys/kernel/tracing/events/#{name.partition(":").first}")
      end

      def hidden?(path) = File.dirname(path).then { |one| File.directory?(one) && !File.executable?(one) }

      def not_linux
        Error.new("USDT probes need Linux, and this is #{RUBY_PLATFORM}", "run it where the process runs")
      end
    end
  end
end
