# frozen_string_literal: true

require "spec_helper"
require "open3"
require "yaml"
require "probescope/tracing/path"
require "support/host_helpers"
require "support/otlp_server"

# The bridge's deployment in examples/systemd, examples/kubernetes and examples/collector.yaml.
# `rake deployment` checks more, and the Dockerfile too, over the network.
RSpec.describe "The bridge's deployment" do
  def read(path) = File.read(File.join(Support::ROOT, path))
  def manifests(path) = YAML.load_stream(read(path))
  def pod(path) = manifests(path).find { |one| one["kind"] == "DaemonSet" }.dig("spec", "template", "spec")
  def bridge = pod("examples/kubernetes/daemonset.yaml")["containers"].first
  def unit = File.join(Support::ROOT, "examples/systemd/probescope-otel.service")

  def capabilities
    File.read(unit)[/^CapabilityBoundingSet=(.*)/, 1].split.map { |name| name.delete_prefix("CAP_") }
  end

  it "has a unit that systemd loads without a warning" do
    skip "no systemd-analyze here (Debian: systemd)" unless Probescope::Tracing::Path.find("systemd-analyze")
    out, status = Open3.capture2e("systemd-analyze", "verify", unit)
    expect([out, status.exitstatus]).to eq(["", 0])
  end

  it "has a unit that restricts an attacker, by the rating of systemd" do
    skip "no systemd-analyze here (Debian: systemd)" unless Probescope::Tracing::Path.find("systemd-analyze")
    out, status = Open3.capture2e("systemd-analyze", "security", "--offline=true", "--threshold=32", unit)
    expect(status.exitstatus).to eq(0), out
    expect(out[/exposure level .*: ([\d.]+)/, 1].to_f).to be_between(0.1, 3.2)
  end

  # Returns {name => number} of this machine's system calls.
  def system_calls
    text, = Open3.capture2("cc", "-E", "-dM", "-x", "c", "-", stdin_data: "#include <sys/syscall.h>\n")
    text.scan(/^#define __NR_(\w+) (\d+)$/).to_h.transform_values(&:to_i)
  end

  # Returns the numbers of the calls that the unit forbids, with nested sets.
  def forbidden(names = File.read(unit)[/^SystemCallFilter=~(.*)/, 1].split)
    names.flat_map do |name|
      next system_calls[name] || [] unless name.start_with?("@")

      listed, = Open3.capture2("systemd-analyze", "syscall-filter", name)
      forbidden(listed.lines.drop(1).map(&:strip).grep_v(/\A(#|\z)/))
    end
  end

  # A use of each capability of the unit, with privilege on a process of another user. It prints
  # "done" if it works. bpftrace 0.25 and later attaches without CAP_SYS_ADMIN, but opening files of
  # processes needs it.
  attach = "print `bpftrace -e 'BEGIN { printf(\"done\"); exit() }' 2>&1`[/done/]"
  open_file = "File.open(Dir['/proc/' + ARGV[0] + '/map_files/*'].first, &:close); print 'done'"
  uses = {
    "CAP_SYS_ADMIN" => -> { (Support::Bpf.version <=> [0, 25]) >= 0 ? open_file : attach },
    "CAP_SYS_PTRACE" => "Probescope::Tracing::ProbedProcess.find(ARGV[0].to_i); print 'done'",
    "CAP_DAC_READ_SEARCH" => "Dir.children('/proc/' + ARGV[0] + '/map_files'); print 'done'",
    "CAP_SETUID" => "Probescope::Otel::Nobody.become([$stdout]); print 'done' if Process.uid != 0",
    "CAP_SETGID" => "Probescope::Otel::Nobody.become([$stdout]); print 'done' if Process.gid != 0",
    "CAP_KILL" => "Process.kill(:KILL, ARGV[0].to_i); print 'done'"
  }
  uses.each do |name, use|
    it "has a unit that keeps #{name} for a reason: without it something fails", :bpf do
      other = keep(Support::Child.new("setpriv", "--reuid=daemon", "--regid=daemon",
                                      "--clear-groups", Support::HostTarget.binary))
      other.await_line(/\Aready$/)
      tried = [capabilities - [name.delete_prefix("CAP_")], capabilities].map do |kept|
        bounds = ["-all", *kept.map { |one| "+#{one.downcase}" }].join(",")
        needed = %w[tracing/probed_process otel/nobody].map { |file| "require 'probescope/#{file}'\n" }.join
        code = needed + (use.is_a?(Proc) ? use.call : use)
        held = ["setpriv", "--bounding-set", bounds, "--inh-caps=-all", "--no-new-privs"]
        Open3.capture2e(*held, RbConfig.ruby, "-I", File.join(Support::ROOT, "lib"), "-e", code,
                        other.pid.to_s).first
      end
      expect(tried.first).not_to end_with("done")
      expect(tried.last).to eq("done")
    end
  end

  # The folder has the links to libraries and the lock of each bridge, also those of commands.
  it "has a unit that leaves /run/probescope in place when it ends" do
    expect(File.read(unit)).to match(/^RuntimeDirectory=probescope$.*^RuntimeDirectoryPreserve=yes$/m)
  end

  it "has a unit with a test for every capability" do
    expect(capabilities.map { |name| "CAP_#{name}" }).to match_array(uses.keys)
  end

  # GIVEN the unit's capabilities without a way to others, its system calls, and its read-only file
  # system, THEN the bridge attaches and exports.
  it "has a unit that leaves bpftrace what it needs", :bpf do
    server = keep(Support::OtlpServer.new)
    process = target("$stdout.sync = true; eval('def slow = sleep(0.002)', TOPLEVEL_BINDING, " \
                     "'#{Support::ROOT}/spec/work.rb', 1); " \
                     "puts 'ready'; loop { slow }").ready
    mounts = ["mkdir -p -m 0700 /run/probescope", "mount -t tmpfs -o mode=0700 tmpfs /run/probescope",
              # The tmpfs must not cover a checkout in /tmp.
              *("mount -t tmpfs tmpfs /tmp" unless Support::ROOT.start_with?("/tmp/")),
              "mount -o remount,bind,ro /sys", "mount -o remount,bind,ro /sys/kernel/tracing",
              "mount -o remount,bind,ro /", "! touch #{Support::ROOT}/tmp/written"]
    kept = ["-all", *capabilities.map { |name| "+#{name.downcase}" }].join(",")
    held = ["setpriv", "--bounding-set", kept, "--inh-caps=-all", "--no-new-privs"]
    if Probescope::Tracing::Path.find("systemd-analyze")
      calls = forbidden
      expect(calls.size).to be > 30
      held = ["python3", File.join(Support::ROOT, "spec/support/without_calls.py"), calls.join(","), *held]
    end
    command = ["otel", "-p", process.pid.to_s, "--slow", "1ms", "--exceptions", "none",
               "--endpoint", server.endpoint]
    bridge = keep(Support::Child.new("unshare", "--mount", "sh",
                                     "-c", "#{mounts.join(" && ")} && exec \"$@\"", "sh", *held,
                                     RbConfig.ruby, Support::EXE, *command, env: Support.command_env))
    bridge.await_line(/attached to/, stream: :err)
    await("spans") { server.spans.any? }
    expect(bridge.stop(within: 60)).to be_success
  end

  it "has a reason for each capability of the DaemonSet, and the same capabilities as the unit" do
    given = bridge.dig("securityContext", "capabilities", "add")
    # A container has no LimitMEMLOCK, so it needs SYS_RESOURCE instead.
    expect(given).to match_array(capabilities + ["SYS_RESOURCE"])
    expect(bridge["securityContext"])
      .to include("privileged" => false, "capabilities" => include("drop" => ["ALL"]))
    # A comment before one or more capabilities has their reason.
    list = read("examples/kubernetes/daemonset.yaml")[/^ +add:\n((?: +(?:#|- ).*\n)+)/, 1]
    expect(list.scan(/- (\w+)/).flatten).to eq(given)
    expect(list).to match(/\A +#/)
  end

  it "gives the DaemonSet a valid command line of the bridge", :slow do
    result = probescope(*bridge.fetch("args"), "--help")
    expect(result).to be_success, result.err
    expect(pod("examples/kubernetes/daemonset.yaml")["hostPID"]).to be(true)
  end

  it "mounts existing volumes, and selects the pods that it makes" do
    %w[daemonset collector].each do |name|
      path = "examples/kubernetes/#{name}.yaml"
      mounted = pod(path)["containers"].flat_map { |one| one["volumeMounts"].map { |mount| mount["name"] } }
      expect(mounted).to match_array(pod(path)["volumes"].map { |volume| volume["name"] })
      set = manifests(path).find { |one| one["kind"] == "DaemonSet" }["spec"]
      expect(set.dig("template", "metadata", "labels")).to include(set.dig("selector", "matchLabels"))
    end
  end

  it "has a Collector whose pipelines name only configured parts, in the order that limits memory" do
    collector = YAML.safe_load(read("examples/collector.yaml"), aliases: true)
    service = collector["service"]
    expect(service["extensions"]).to match_array(collector["extensions"].keys)
    expect(service["pipelines"].keys).to match_array(%w[traces logs metrics])
    service["pipelines"].each_value do |pipeline|
      %w[receivers processors exporters].each do |kind|
        expect(pipeline[kind]).to match_array(collector[kind].keys)
      end
      expect(pipeline["processors"]).to eq(%w[memory_limiter k8sattributes])
    end
    expect(collector["exporters"].values.map { |one| one.dig("sending_queue", "storage") })
      .to eq(["file_storage"])
    names = collector.dig("processors", "k8sattributes")
    expect(names["pod_association"].flat_map { |one| one["sources"].map { |source| source["name"] } })
      .to eq(%w[k8s.pod.uid container.id])
    # Kubernetes sets each environment variable that the Collector reads.
    wanted = read("examples/collector.yaml").scan(/\$\{env:(\w+)/).flatten |
             [names.dig("filter", "node_from_env_var")]
    expect(pod("examples/kubernetes/collector.yaml")["containers"].first["env"].map { |one| one["name"] })
      .to include(*wanted)
  end
end
