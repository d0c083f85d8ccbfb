# frozen_string_literal: true

require_relative "process_context"

module Probescope
  module Otel
    # Collects the attributes for the Resource of a process. Runs with privilege, and keeps only two
    # variables of the process's environment.
    module Resources
      VARIABLES = %w[OTEL_SERVICE_NAME OTEL_RESOURCE_ATTRIBUTES].freeze
      CONTAINER = /\h{64}/
      UID = /\h{8}[-_]\h{4}[-_]\h{4}[-_]\h{4}[-_]\h{12}/
      POD = /pod(#{UID})/
      # The kubelet mounts a file of the pod on /etc/hosts of each container.
      HOSTS = %r{/pods/(#{UID})/etc-hosts /etc/hosts }
      CGROUPS = "/sys/fs/cgroup"
      RUNTIMES = {"ruby" => "ruby", "python" => "cpython"}.freeze

      module_function

      # Returns {attributes:, claims:, service_name:, executable:, published:}. attributes: what the
      # kernel reports about the process, and what the library reports about the runtime. The rest
      # is claimed by the process: OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME, and its published
      # process context in hexadecimal digits, or nil. snapshot: Tracing::Info#snapshot.
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

      # The pid in the innermost PID namespace, which the process itself sees.
      def own_number(pid) = File.read("/proc/#{pid}/status")[/^NSpid:.*?(\d+)$/, 1]&.to_i || pid

      # This machine's name, unless the process has a host name of its own.
      def host(pid)
        shared?(pid, "uts") ? {"host.name" => text(File.read("/proc/sys/kernel/hostname").chomp)} : {}
      end

      # The owner of another user namespace can mount anything there.
      def mounts(pid) = shared?(pid, "user") ? File.binread("/proc/#{pid}/mountinfo") : ""

      def shared?(pid, namespace)
        %W[#{pid} self].map { |one| File.readlink("/proc/#{one}/ns/#{namespace}") }.uniq.one?
      end

      # The attributes for all processes from the bridge's own environment.
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

      # Parses "key=value,key=value", percent-encoded.
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

      # Returns [the cgroup path whose names root chose, the rest of the path], with a line for each
      # hierarchy. systemd delegates a subtree to each user, who may give a cgroup in it the name of
      # somebody else's container.
      def groups(pid, root = CGROUPS)
        parts = File.binread("/proc/#{pid}/cgroup").lines.map do |line|
          _, controllers, path = line.chomp.split(":", 3)
          of_root(folders(controllers, root), path)
        end
        parts.transpose.map { |paths| paths.join("\n") }
      end

      # The folders where the hierarchy may be mounted.
      def folders(controllers, root)
        controllers.empty? ? [root, "#{root}/unified"] : ["#{root}/#{controllers.delete_prefix("name=")}"]
      end

      # Returns [the beginning of the path whose names root chose, the rest]. The owner of a folder
      # names what is in it. In a cgroup namespace the folders cannot be seen, and the whole path
      # counts as root's.
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

      # groups and mounts: the process's /proc/PID/cgroup and mountinfo. The innermost of nested
      # containers counts. A bridge in a cgroup namespace does not see names above that namespace,
      # such as the name of a pod that it shares.
      def container(groups, mounts)
        pod = groups.scan(POD).flatten.last || mounts[HOSTS, 1]
        {"container.id" => groups.scan(CONTAINER).last, "k8s.pod.uid" => pod&.tr("_", "-")}.compact
      end
    end
  end
end
