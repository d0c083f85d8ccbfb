# frozen_string_literal: true

require_relative "process_context"

module Probescope
  module Otel
    # What the attributes of one process's Resource are. Runs with privilege, and reads of its
    # environment two variables only.
    module Resources
      VARIABLES = %w[OTEL_SERVICE_NAME OTEL_RESOURCE_ATTRIBUTES].freeze
      CONTAINER = /\h{64}/
      UID = /\h{8}[-_]\h{4}[-_]\h{4}[-_]\h{4}[-_]\h{12}/
      POD = /pod(#{UID})/
      # The kubelet mounts a file of the pod's on each container's /etc/hosts.
      HOSTS = %r{/pods/(#{UID})/etc-hosts /etc/hosts }
      CGROUPS = "/sys/fs/cgroup"
      RUNTIMES = {"ruby" => "ruby", "python" => "cpython"}.freeze

      module_function

      # {attributes:, claims:, service_name:, executable:, published:}. attributes: what the kernel
      # says of a process, and of its runtime the library. The rest is what the process says of
      # itself: its OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME, and the process context that it
      # has published, as hexadecimal digits, or nil. snapshot: Host::Info#snapshot.
      def of(pid, snapshot)
        environment = environment(pid)
        groups, claimed = groups(pid)
        executable = File.readlink("/proc/#{pid}/exe").sub(/ \(deleted\)\z/, "")
        {attributes: {"process.pid" => own_number(pid), "process.executable.path" => text(executable),
                      **runtime(snapshot), **host(pid), **container(groups, mounts(pid))},
         claims: {**container(claimed, ""), **parse(environment["OTEL_RESOURCE_ATTRIBUTES"])},
         service_name: environment["OTEL_SERVICE_NAME"], executable: text(File.basename(executable)),
         published: ProcessContext.read(pid)&.unpack1("H*")}
      rescue SystemCallError
        {attributes: {"process.pid" => pid}, claims: {}, service_name: nil, executable: nil, published: nil}
      end

      # In the innermost PID namespace, as the process itself knows it.
      def own_number(pid) = File.read("/proc/#{pid}/status")[/^NSpid:.*?(\d+)$/, 1]&.to_i || pid

      # This machine's name, where the process has no other one of its own.
      def host(pid)
        shared?(pid, "uts") ? {"host.name" => text(File.read("/proc/sys/kernel/hostname").chomp)} : {}
      end

      # Whoever made a user namespace mounts there what he likes.
      def mounts(pid) = shared?(pid, "user") ? File.binread("/proc/#{pid}/mountinfo") : ""

      def shared?(pid, namespace)
        %W[#{pid} self].map { |one| File.readlink("/proc/#{one}/ns/#{namespace}") }.uniq.one?
      end

      # What OpenTelemetry's environment of the bridge says, for all processes.
      def own(environment = ENV)
        name = environment["OTEL_SERVICE_NAME"].to_s.strip
        {**parse(environment["OTEL_RESOURCE_ATTRIBUTES"]),
         **(name.empty? ? {} : {"service.name" => text(name)})}
      end

      def environment(pid)
        File.binread("/proc/#{pid}/environ").split("\0").filter_map do |pair|
          name, value = pair.split("=", 2)
          [name, text(value)] if VARIABLES.include?(name) && !value.to_s.empty?
        end.to_h
      end

      # "key=value,key=value", percent-encoded.
      def parse(attributes)
        attributes.to_s.split(",").filter_map do |pair|
          key, value = pair.split("=", 2).map(&:strip)
          [decode(key), decode(value)] unless key.to_s.empty? || value.nil?
        end.to_h
      end

      def decode(value) = text(value.gsub(/%(\h\h)/) { Regexp.last_match(1).hex.chr })

      def text(value) = value.b.force_encoding(Encoding::UTF_8).scrub

      def runtime(snapshot)
        name, version = snapshot.values_at(:runtime, :version)
        {"process.runtime.name" => RUNTIMES.fetch(name, name), "process.runtime.version" => version}
      end

      # [names of its cgroups that root gave, those below which another user gave], a line for each
      # hierarchy: systemd hands a part of the tree to each user, who may name a cgroup there as a
      # container of somebody else is named.
      def groups(pid, root = CGROUPS)
        parts = File.binread("/proc/#{pid}/cgroup").lines.map do |line|
          _, controllers, path = line.chomp.split(":", 3)
          of_root(folders(controllers, root), path)
        end
        parts.transpose.map { |paths| paths.join("\n") }
      end

      # Where a hierarchy is mounted, perhaps.
      def folders(controllers, root)
        controllers.empty? ? [root, "#{root}/unified"] : ["#{root}/#{controllers.delete_prefix("name=")}"]
      end

      # [the beginning of the path whose names root gave, the rest]: who owns a folder names what is
      # in it. In a cgroup namespace the folders are not to be seen, and all of it is root's.
      def of_root(folders, path)
        names = path.split("/").drop(1)
        folder = folders.find { |one| names.any? && File.directory?("#{one}/#{names.first}") }
        return [path, ""] unless folder

        given = names.each_index.find { |i| File.stat([folder, *names.first(i + 1)].join("/")).uid != 0 }
        given ||= names.size
        [names.first(given + 1), names.drop(given + 1)].map { |some| "/#{some.join("/")}" }
      rescue SystemCallError
        [path, ""]
      end

      # groups and mounts: the process's /proc/PID/cgroup and mountinfo. Where containers are nested
      # the innermost one counts. From a cgroup namespace of its own a bridge does not see the names
      # above both, such as that of a pod which it shares.
      def container(groups, mounts)
        pod = groups.scan(POD).flatten.last || mounts[HOSTS, 1]
        {"container.id" => groups.scan(CONTAINER).last, "k8s.pod.uid" => pod&.tr("_", "-")}.compact
      end
    end
  end
end
