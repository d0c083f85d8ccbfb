# frozen_string_literal: true

require "spec_helper"
require "open3"
require "yaml"
require "probescope/host/path"
require "support/otlp_server"

# How the bridge is deployed: examples/systemd, examples/kubernetes, examples/collector.yaml. `rake deployment` holds
# them to more, and the Dockerfile too, over the network.
RSpec.describe "The bridge's deployment" do
  def read(path) = File.read(File.join(Support::ROOT, path))
  def manifests(path) = YAML.load_stream(read(path))
  def pod(path) = manifests(path).find { |one| one["kind"] == "DaemonSet" }.dig("spec", "template", "spec")
  def bridge = pod("examples/kubernetes/daemonset.yaml")["containers"].first
  def unit = File.join(Support::ROOT, "examples/systemd/probescope-otel.service")
  def capabilities = File.read(unit)[/^CapabilityBoundingSet=(.*)/, 1].split.map { |name| name.delete_prefix("CAP_") }

  it "has a unit that systemd takes without a warning" do
    skip "no systemd-analyze here (Debian: systemd)" unless Probescope::Host::Path.find("systemd-analyze")
    out, status = Open3.capture2e("systemd-analyze", "verify", unit)
    expect([out, status.exitstatus]).to eq(["", 0])
  end

  # GIVEN what the unit leaves: those capabilities, no way to others, a file system to read; THEN the bridge attaches and exports.
  it "has a unit that leaves bpftrace what it needs", :bpf do
    server = keep(Support::OtlpServer.new)
    process = target("$stdout.sync = true; eval('def slow = sleep(0.002)', TOPLEVEL_BINDING, '#{Support::ROOT}/spec/work.rb', 1); " \
                     "puts 'ready'; loop { slow }").ready
    mounts = ["mkdir -p /run/probescope", "mount -t tmpfs -o mode=0700 tmpfs /run/probescope",
              # Not over a checkout that lies there.
              *("mount -t tmpfs tmpfs /tmp" unless Support::ROOT.start_with?("/tmp/")),
              "mount -o remount,bind,ro /sys", "mount -o remount,bind,ro /sys/kernel/tracing", "mount -o remount,bind,ro /",
              "! touch #{Support::ROOT}/tmp/written"]
    kept = ["-all", *capabilities.map { |name| "+#{name.downcase}" }].join(",")
    held = ["setpriv", "--bounding-set", kept, "--inh-caps=-all", "--no-new-privs"]
    command = ["otel", "-p", process.pid.to_s, "--slow", "1ms", "--exceptions", "none", "--endpoint", server.endpoint]
    bridge = keep(Support::Child.new("unshare", "--mount", "sh", "-c", "#{mounts.join(" && ")} && exec \"$@\"", "sh", *held,
                                     RbConfig.ruby, Support::EXE, *command, env: ENV.to_h))
    bridge.await_line(/attached to/, stream: :err)
    await("spans") { server.spans.any? }
    expect(bridge.stop(within: 10)).to be_success
  end

  it "names each capability of the DaemonSet with its reason, and those of the unit" do
    given = bridge.dig("securityContext", "capabilities", "add")
    expect(given).to match_array(capabilities)
    expect(bridge["securityContext"]).to include("privileged" => false, "capabilities" => include("drop" => ["ALL"]))
    # The reason stands before it, perhaps before several of them.
    list = read("examples/kubernetes/daemonset.yaml")[/^ +add:\n((?: +(?:#|- ).*\n)+)/, 1]
    expect(list.scan(/- (\w+)/).flatten).to eq(given)
    expect(list).to match(/\A +#/)
  end

  it "gives the DaemonSet a command line that the bridge takes" do
    result = probescope(*bridge.fetch("args"), "--help")
    expect(result).to be_success, result.err
    expect(pod("examples/kubernetes/daemonset.yaml")["hostPID"]).to be(true)
  end

  it "mounts volumes that are there, and selects the pods that it makes" do
    %w[daemonset collector].each do |name|
      path = "examples/kubernetes/#{name}.yaml"
      mounted = pod(path)["containers"].flat_map { |one| one["volumeMounts"].map { |mount| mount["name"] } }
      expect(mounted).to match_array(pod(path)["volumes"].map { |volume| volume["name"] })
      set = manifests(path).find { |one| one["kind"] == "DaemonSet" }["spec"]
      expect(set.dig("template", "metadata", "labels")).to include(set.dig("selector", "matchLabels"))
    end
  end

  it "has a Collector whose pipelines name what is configured, in the order that holds memory" do
    collector = YAML.safe_load(read("examples/collector.yaml"), aliases: true)
    service = collector["service"]
    expect(service["extensions"]).to match_array(collector["extensions"].keys)
    expect(service["pipelines"].keys).to match_array(%w[traces logs metrics])
    service["pipelines"].each_value do |pipeline|
      %w[receivers processors exporters].each { |kind| expect(pipeline[kind]).to match_array(collector[kind].keys) }
      expect(pipeline["processors"]).to eq(%w[memory_limiter k8sattributes])
    end
    expect(collector["exporters"].values.map { |one| one.dig("sending_queue", "storage") }).to eq(["file_storage"])
    names = collector.dig("processors", "k8sattributes")
    expect(names["pod_association"].flat_map { |one| one["sources"].map { |source| source["name"] } }).to eq(%w[k8s.pod.uid container.id])
    # What it reads of its environment is given in Kubernetes.
    wanted = read("examples/collector.yaml").scan(/\$\{env:(\w+)/).flatten | [names.dig("filter", "node_from_env_var")]
    expect(pod("examples/kubernetes/collector.yaml")["containers"].first["env"].map { |one| one["name"] }).to include(*wanted)
  end
end
