# frozen_string_literal: true

require "spec_helper"
require "probescope/otel/resources"
require "support/host_helpers"
require "support/otlp_server"
require "support/process_trees"

RSpec.describe "probescope otel and containers" do
  container = "3f2a#{"0123456789abcdef" * 3}0123456789ab"
  pod = "2d6f7a5e-8c1b-4f3a-9e7d-0a1b2c3d4e5f"

  app = <<~RUBY
    $stdout.sync = true
    eval(<<~WORK, TOPLEVEL_BINDING, "/mnt/app.rb", 1)
      def slow = sleep(0.002)
    WORK
    puts "ready"
    loop { slow }
  RUBY

  # Returns the folder of a cgroup of version 2, or nil if none can be made.
  def make_cgroup(path)
    mounts = File.foreach("/proc/self/mounts").map(&:split)
    root = mounts.find { |_, _, type| type == "cgroup2" }&.at(1) or return
    folders = path.split("/").reduce([root]) { |made, name| made << File.join(made.last, name) }.drop(1)
    @cgroups = (@cgroups || []) | folders
    folders.each { |folder| Dir.mkdir(folder) unless Dir.exist?(folder) }.last
  rescue SystemCallError
    nil
  end

  def remove_cgroups
    stop_processes
    @cgroups&.reverse_each do |folder|
      await("nobody in #{folder}") { File.read("#{folder}/cgroup.procs").empty? }
      Dir.rmdir(folder)
    end
  end

  # Starts a process in its own mounts and PID namespace. Its library's path exists only in these
  # mounts, and its PID is 1.
  def contained(app, cgroup, hosts)
    FileUtils.mkdir_p(File.dirname(hosts))
    File.write(hosts, "127.0.0.1 localhost\n")
    inside =
      "mount --bind #{Support::ROOT} /mnt && mount --bind #{hosts} /etc/hosts && cd /mnt && exec \"$@\""
    command = ["unshare", "--mount", "--pid", "--cgroup", "--fork", "--mount-proc", "--kill-child", "sh",
               "-c", inside, "sh", RbConfig.ruby, "-I/mnt/lib", "-r/mnt/lib/probescope/auto", "-e", app]
    process =
      keep(Support::Child.new("sh", "-c", "echo $$ > #{cgroup || "/dev/null"}; exec \"$@\"", "sh", *command))
    process.await_line(/\Aready$/)
    children_of(process.pid).first
  end

  # Starts a bridge with these words and returns the resource that it sends for the process.
  def resource(pid, *before)
    server = keep(Support::OtlpServer.new)
    arguments = ["otel", "-p", pid.to_s, "--slow", "1ms", "--exceptions", "none",
                 "--endpoint", server.endpoint]
    bridge = keep(Support::Child.new(*before, RbConfig.ruby, Support::EXE, *arguments,
                                     env: Support.command_env))
    bridge.await_line(/attached to/, stream: :err)
    found = await("spans") { server.spans.first }
    expect(found.last.name).to eq("Object#slow")
    expect(bridge.stop(within: 60)).to be_success
    found.first
  end

  # GIVEN a process in its own mounts, PIDs and cgroups, THEN the bridge on the host finds its
  # library and sends its container. It also does so from another container of the pod, which does
  # not see the pod in the names of cgroups.
  it "attaches to a process in a container, and names the container", :bpf do
    name = "probescope-spec.slice/kubepods-burstable-pod#{pod.tr("-", "_")}.slice"
    cgroup = make_cgroup("#{name}/cri-containerd-#{container}.scope")
    beside = cgroup && make_cgroup("#{name}/cri-containerd-#{container.reverse}.scope")
    process = contained(app, cgroup && "#{cgroup}/cgroup.procs",
                        File.join(Support::ROOT, "tmp/pods/#{pod}/etc-hosts"))

    expect(resource(process))
      .to include("process.pid" => 1, "k8s.pod.uid" => pod, **(cgroup ? {"container.id" => container} : {}))
    next unless cgroup

    other = ["sh", "-c", "echo $$ > #{beside}/cgroup.procs; exec unshare --cgroup \"$@\"", "sh"]
    expect(resource(process, *other)).to include("k8s.pod.uid" => pod, "container.id" => container)
  ensure
    remove_cgroups
  end

  it "is refused inside a container if bpftrace counts processes by other numbers", :bpf do
    skip "of another bpftrace: before 0.23" if (Support::Bpf.version <=> [0, 23]) >= 0
    inside = keep(Support::Child.new("unshare", "--pid", "--fork", "--mount-proc", RbConfig.ruby,
                                     Support::EXE, "otel", "-p", "1", env: Support.command_env))
    expect(inside.wait.exitstatus).to eq(1)
    expect(inside.err).to match(/\Aprobescope: bpftrace 0\.\d+\.\d+ counts processes by .*\n  try: .*hostPID/)
  end

  # GIVEN a process and the bridge in one PID namespace, WHEN a thread other than the main one
  # calls, THEN the call is the process's. In that case bpftrace 0.23.0 to 0.24.1 swaps the numbers
  # of the thread and of its process.
  it "counts calls of all threads for their process in its own PID namespace", :bpf do
    # An older bpftrace is refused, see above.
    skip "of another bpftrace: from 0.23 on" if (Support::Bpf.version <=> [0, 23]).negative?
    server = keep(Support::OtlpServer.new)
    folder = FileUtils.mkdir_p("#{Support::ROOT}/tmp/containers-spec").first
    FileUtils.rm_f("#{folder}/started")
    File.write("#{folder}/app.rb", <<~RUBY)
      def slow = sleep(0.002)
      File.write("started", "")
      puts "ready"
      $stdout.flush
      Thread.new { loop { slow } }.join
    RUBY
    bridge = container(<<~SH, env: Support.command_env)
      cd #{folder}
      #{RbConfig.ruby} -I#{Support::ROOT}/lib -rprobescope/auto app.rb &
      until [ -e started ]; do sleep 0.1; done
      exec #{RbConfig.ruby} #{Support::EXE} otel -p $! --slow 1ms --exceptions none \\
        --endpoint #{server.endpoint}
    SH
    expect(await("spans", within: 120) { server.spans.first }.last.name).to eq("Object#slow")
    Process.kill(:INT, inside(bridge))
    bridge.await_line(/"received":\{[^}]*"slow_calls":\d+[^}]*\},"of_other_processes":0,/,
                      stream: :err, within: 20)
  end

  names = {
    "0::/system.slice/docker-#{container}.scope" => [container, nil],
    "0::/docker/#{container}" => [container, nil],
    "0::/kubepods.slice/kubepods-pod#{pod.tr("-", "_")}.slice/crio-#{container}.scope/container" =>
      [container, pod],
    "0::/kubepods/besteffort/pod#{pod}/#{container}" => [container, pod],
    "4:memory:/kubepods/pod#{pod}/#{container}\n1:name=systemd:/kubepods/pod#{pod}/#{container}\n0::/" =>
      [container, pod],
    # kind: a node that is itself a container.
    "0::/docker/#{container.reverse}/kubelet/kubepods/pod#{pod}/#{container}" => [container, pod],
    "0::/../../kubepods-pod#{pod.tr("-", "_")}.slice/cri-containerd-#{container}.scope" => [container, pod],
    "0::/user.slice/user-1000.slice/session-3.scope" => [nil, nil]
  }
  it "parses the names that runtimes give to cgroups" do
    names.each do |groups, (id, uid)|
      expect(Probescope::Otel::Resources.container("#{groups}\n", ""))
        .to eq({"container.id" => id, "k8s.pod.uid" => uid}.compact)
    end
  end

  # GIVEN a part of the cgroup tree that systemd has delegated to a user, and a cgroup there that
  # this user has named like another container, THEN its name is only a claim.
  it "trusts a container's name only in a cgroup of root" do
    name = "probescope-spec.slice/user@1000.service"
    forged = make_cgroup("#{name}/docker-#{container}.scope") or skip "no cgroups here"
    process = host_target
    File.write("#{forged}/cgroup.procs", process.pid.to_s)
    said = -> { Probescope::Otel::Resources.of(process.pid, {runtime: "ruby", version: "3.1"}) }
    expect(said.call)
      .to match(hash_including(attributes: hash_including("container.id" => container), claims: {}))
    File.chown(1000, 1000, File.dirname(forged))
    claimed = said.call
    expect(claimed[:attributes]).not_to have_key("container.id")
    expect(claimed[:claims]).to eq("container.id" => container)
    # Docker names a container's cgroup itself, and gives the cgroup to the container's user.
    File.chown(0, 0, File.dirname(forged))
    File.chown(1000, 1000, forged)
    expect(said.call[:attributes]).to include("container.id" => container)
  ensure
    remove_cgroups
  end

  it "ignores the volumes of other pods, which a node mounts" do
    mounts = "91 29 0:42 / /var/lib/kubelet/pods/#{pod}/volumes/token rw - tmpfs tmpfs rw\n" \
             "92 29 8:1 /etc/hosts /etc/hosts rw - ext4 /dev/sda rw\n"
    expect(Probescope::Otel::Resources.container("0::/\n", mounts)).to eq({})
  end
end
