# frozen_string_literal: true

require "spec_helper"
require "open3"
require "support/host_helpers"
require "probescope/tracing/tool"

# Debian's package, installed over this system in a separate mount namespace, with a user who has
# only its sudo rule.
RSpec.describe "The package whose helper is root's", :bpf do
  missing = %w[sudo dpkg-deb visudo useradd].reject do |name|
    Probescope::Tracing::Tool::FOLDERS.any? { |one| File.exist?("#{one}/#{name}") }
  end
  folder = nil

  before(:all) do
    next if missing.any? || !Process.uid.zero?

    folder = Dir.mktmpdir(nil, "/root")
    out, status = Open3.capture2e(RbConfig.ruby, "-S", "bundle", "exec", "rake", "deb", chdir: Support::ROOT)
    raise out unless status.success?
  end

  after(:all) { FileUtils.rm_rf(folder) if folder }

  before do
    skip "no #{missing.join(", ")} here" if missing.any?
    mounts = %w[unshare --mount --propagation private]
    @system = keep(Support::Child.new(*mounts, "sh", "-euc", <<~SH, "sh", folder, stdin: true))
      mount -t tmpfs tmpfs "$1"
      for place in usr etc var; do
        mkdir -p "$1/$place/upper" "$1/$place/work"
        mount -t overlay overlay \\
          -o "lowerdir=/$place,upperdir=$1/$place/upper,workdir=$1/$place/work" "/$place"
      done
      dpkg-deb -x #{Dir["#{Support::ROOT}/pkg/probescope_*_all.deb"].first} /
      groupadd --system tracers
      useradd --create-home --home-dir /var/tracer --shell /bin/sh --groups tracers tracer
      rm -rf /etc/sudoers.d
      mkdir -m 0755 /etc/sudoers.d
      install -m 0440 /usr/share/doc/probescope/examples/sudoers /etc/sudoers.d/probescope
      echo '@includedir /etc/sudoers.d' >/etc/sudoers
      visudo -c >&2
      echo ready
      cat
    SH
    @system.await_line(/\Aready/)
  end

  # Runs a command as the user, or as root. Returns [status, stdout, stderr].
  def run(*words, user: "tracer", env: {})
    become = user ? %W[setpriv --reuid=#{user} --regid=#{user} --init-groups] : []
    environment = {"PATH" => "/usr/sbin:/usr/bin:/sbin:/bin", "LANG" => "C.UTF-8", "HOME" => "/var/tracer",
                   **env}
    # nsenter also needs --root, because in a chroot the root of that mount namespace is another
    # one.
    inside = %W[nsenter --mount=/proc/#{@system.pid}/ns/mnt --root=/proc/#{@system.pid}/root]
    home = user == "daemon" ? "/" : "/var/tracer"
    child = keep(Support::Child.new(*inside, *become, "env", "-C", home,
                                    *environment.map { |pair| pair.join("=") }, *words.map(&:to_s),
                                    env: Support.plain_env))
    child.wait(within: 60)
    [child.wait.exitstatus, child.out, child.err]
  end

  def probescope_of_package(...) = run("/usr/bin/probescope", ...)

  it "lets the user trace, and look at a process" do
    process = host_target
    status, out, err = probescope_of_package("hot", "-p", process.pid, "-d", 1, "--by", "self", "--json")
    expect(status).to eq(0), err
    expect(JSON.parse(out)["rows"].size).to eq(3)
    expect(JSON.parse(probescope_of_package("status", "-p", process.pid, "--json")[1])["pids"])
      .to eq([process.pid])
    status, out, = probescope_of_package("doctor")
    expect([status, out[/^.*the privilege to trace.*$/]]).to match([0, /\Aok/]), out
  end

  it "lets the user do nothing else by sudo" do
    helper = "/usr/lib/probescope/helper"
    run("cp", helper, "/var/tracer/copy")
    attempts = [%w[id], ["/usr/bin/ruby", "-e", "p 1"], ["/usr/bin/ruby", "--disable=gems,rubyopt", helper],
                ["/usr/bin/bpftrace", "--version"], [helper, "-e", "p 1"], [helper, ""], ["/var/tracer/copy"],
                ["/usr/lib/probescope/exe/probescope"],
                ["/usr/lib/probescope/../probescope/exe/probescope"], ["RUBYOPT=-rx", helper], ["-E", helper],
                ["-u", "daemon", helper], ["-s"], ["-i"], ["-e", helper], ["-D", "/tmp", helper],
                ["-R", "/var/tracer", helper], ["-g", "shadow", helper],
                ["-u", "root", "-g", "tracer", helper], ["-C", "100", helper],
                ["LD_PRELOAD=/var/tracer/copy", helper], ["GEM_HOME=/var/tracer", helper]]
    attempts.each do |words|
      status, out, err = run("sudo", "-n", *words)
      expect([words, status, out]).to eq([words, 1, ""]), err
    end
  end

  # sudo compares the inode number, and then runs the path of the rule.
  it "runs the helper, even if a link to it is replaced" do
    swap = <<~SH
      cp /usr/bin/id other
      (while :; do ln -sfn /usr/lib/probescope/helper link; ln -sfn /var/tracer/other link; done) &
      for i in $(seq 60); do sudo -n /var/tracer/link </dev/null 2>/dev/null || :; done
      kill $!
    SH
    said = run("sh", "-c", swap)[1]
    expect(said.lines.uniq - ["{\"is\":\"ready\"}\n"]).to be_empty
  end

  it "has no file that the user may write to" do
    expect(run("find", "/usr/lib/probescope", "/usr/bin/probescope", "-writable", "!", "-type", "l")[1])
      .to be_empty
    expect(run("find", "/usr/lib/probescope", "(", "!", "-user", "root", "-o", "-perm", "/022", ")",
               "!", "-type", "l")[1]).to be_empty
  end

  # GIVEN files that Ruby and shells would load through the environment or the current folder, THEN
  # root loads none of them.
  it "loads nothing that the user's environment names, even if a rule keeps the environment" do
    script = <<~SH
      mkdir -p evil/rubygems evil/lib/probescope/tracing gems
      for name in json digest set etc time rbconfig rubygems monitor evil error; do
        echo 'File.write("/var/tracer/loaded-\#{Process.uid}", __FILE__)' >evil/$name.rb
      done
      cp evil/json.rb evil/lib/probescope/tracing/helper.rb
      echo 'id -u >/var/tracer/loaded-sh' >evil/profile
      for name in ruby env bpftrace setpriv timeout sh; do
        printf '#!/bin/sh\\nid -u >/var/tracer/loaded-%s\\nexec /usr/bin/%s "$@"\\n' $name $name >evil/$name
        chmod 755 evil/$name
      done
    SH
    run("sh", "-euc", script)
    evil = {"RUBYOPT" => "-revil", "RUBYLIB" => "/var/tracer/evil", "GEM_HOME" => "/var/tracer/gems",
            "GEM_PATH" => "/var/tracer/gems", "RUBYGEMS_GEMDEPS" => "-",
            "BUNDLE_GEMFILE" => "/var/tracer/evil/Gemfile", "ENV" => "/var/tracer/evil/profile",
            "BASH_ENV" => "/var/tracer/evil/profile", "RUBYSHELL" => "/var/tracer/evil/sh",
            "TMPDIR" => "/var/tracer", "PATH" => "/var/tracer/evil:/usr/sbin:/usr/bin:/sbin:/bin"}
    orders = "printf '{\"do\":\"try\"}\\n' |"
    in_evil = "cd /var/tracer/evil && #{orders}"
    expect(run("sh", "-c", "#{in_evil} sudo -n /usr/lib/probescope/helper", env: evil)[1])
      .to include('"complaint":null')
    # As root the whole environment arrives.
    expect(run("sh", "-c", "#{in_evil} /usr/lib/probescope/helper", user: nil, env: evil.except("ENV"))[1])
      .to include('"complaint":null')
    found = run("find", "/var/tracer", "-name", "loaded-*", "-user", "root")[1]
    expect(found.lines - ["/var/tracer/loaded-env\n"]).to be_empty
  end

  it "refuses requests of the user that name a file or are huge" do
    process = host_target
    order = {do: "trace", pids: [process.pid], programs: ["hot"], seconds: 1, keys: 100, pages: 1}
    wrong = [order.merge(bpftrace: "/var/tracer/evil"), order.merge(programs: ["/var/tracer/evil.bt"]),
             order.merge(keys: 1 << 30), order.merge(comm: "x" * 65_536)]
    lines = wrong.map { |one| JSON.generate(one) }
    run("sh", "-c", "cat >orders <<'E'\n#{lines.join("\n")}\nE")
    status, out, = run("sh", "-c", "(while read -r line; do echo \"$line\"; sleep 0.2; " \
                                   "done <orders) | sudo -n /usr/lib/probescope/helper")
    expect(status).to eq(0)
    expect(out.lines.drop(1).map { |line| JSON.parse(line)["is"] }.uniq).to eq(["error"])
    expect(tracers_of(process.pid)).to be_empty
  end

  it "is refused to a user outside the group, with a next step" do
    process = host_target
    status, out, err = run("/usr/bin/probescope", "hot", "-p", process.pid, "-d", 1, user: "daemon")
    expect([status, out]).to eq([1, ""])
    expect(err).to include("cannot get the privilege to trace")
      .and include("/usr/share/doc/probescope/examples/sudoers")
  end
end
