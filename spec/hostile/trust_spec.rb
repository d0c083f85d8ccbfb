# frozen_string_literal: true

require "etc"
require "spec_helper"
require "hostile/files"
require "probescope/tracing/links"
require "probescope/tracing/probed_process"
require "support/host_helpers"
require "support/otlp_server"
require "support/process_trees"

# bpftrace reads the notes of each library as root. GIVEN several processes, THEN bpftrace reads a
# library only if root or the user of the command wrote it, unless --trust is given.
RSpec.describe "Trust in libraries", :bpf do
  stranger = 65_534

  # Starts a process whose library is a copy that the block may change.
  def copied(folder = hostile_folder, name: "trust-desk")
    copy = File.join(folder, name)
    FileUtils.cp(Support::HostTarget.binary, copy)
    yield copy if block_given?
    host_target("--rows", 1, binary: copy)
  end

  def folder(name, mode: 0o755, user: 0)
    File.join(hostile_folder, name).tap do |path|
      FileUtils.mkdir_p(path)
      File.chmod(mode, path)
      File.chown(user, nil, path)
    end
  end

  def traced(*words, env: {})
    result = probescope("calls", *words, "-d", 1, "--json", env: env)
    [result.out.empty? ? [] : result.json["processes"].map { |one| one["pid"] }, result.err]
  end

  it "is given only to files and folders of root; others get a next step, and are traced with --trust" do
    honest = host_target("--rows", 1)
    libraries = {
      copied(folder("a")) { |copy| File.chown(stranger, nil, copy) } => /belongs to user #{stranger}/,
      copied(folder("b")) { |copy| File.chmod(0o775, copy) } => /may be written to by others than its owner/,
      copied(folder("c", mode: 0o777)) => %r{lies in \S+/c, which may be written to by others},
      copied(folder("d", user: stranger)) => %r{lies in \S+/d, which belongs to user #{stranger}}
    }
    fine = [honest, copied(folder("e", mode: 0o1777)), copied(folder("f"))]
    File.unlink(File.join(hostile_folder, "f/trust-desk"))
    all = [*fine, *libraries.keys].flat_map { |process| ["-p", process.pid] }
    pids, err = traced(*all)
    expect(pids).to match_array(fine.map(&:pid))
    libraries.each do |process, why|
      line = err.lines.grep(/process #{process.pid} is left out: its library/).first
      expect(line).to match(why).and include("; try: --trust")
    end
    expect(traced("--trust", *all).first).to match_array((fine + libraries.keys).map(&:pid))
  end

  it "is not needed for a single process; if no process is left, that is an error" do
    process = copied { |copy| File.chown(stranger, nil, copy) }
    expect(traced("-p", process.pid).first).to eq([process.pid])
    result = probescope("calls", "-p", process.pid, "--workers", "-d", 1)
    expect(result.status.exitstatus).to eq(1)
    expect(result.err).to match(/is left out: its library .* belongs to user #{stranger}\n  try: --trust/)
    expect(traced("-p", process.pid, "--workers", "--trust").first).to eq([process.pid])
  end

  it "covers files of the user who runs the command through sudo, too" do
    process = copied { |copy| File.chown(stranger, nil, copy) }
    expect(traced("-p", process.pid, "--workers", env: {"SUDO_UID" => stranger.to_s}).first)
      .to eq([process.pid])
    expect(traced("-p", process.pid, "--workers", env: {"SUDO_UID" => "1"}).first).to eq([])
  end

  # On Ubuntu a user's files are made with umask 002. Here the user is daemon, the only member of
  # its group.
  it "covers files that only that user's group may write to" do
    own = copied(shared = folder("own", mode: 0o775, user: 1)) do |copy|
      File.chown(1, 1, copy) && File.chmod(0o775, copy)
    end
    File.chown(1, 1, shared)
    other = copied(folder("other")) do |copy|
      File.chown(1, Etc.getgrnam("adm").gid, copy) && File.chmod(0o775, copy)
    end
    pids, err = traced("-p", own.pid, "-p", other.pid, env: {"SUDO_UID" => "1"})
    expect(pids).to eq([own.pid])
    expect(err).to match(
      /process #{other.pid} is left out: its library \S+ may be written to by others than its owner/
    )
    expect(traced("-p", own.pid, "--workers").last).to match(/belongs to user 1\n/)
  end

  it "does not cover a group with another member" do
    group = Probescope::Tracing::PrivateGroup
    user = Struct.new(:name, :gid).new("alice", 1000)
    allow(Etc).to receive(:getpwuid).and_return(user)
    File.write(passwd = hostile_file(""), "alice:x:1000:1000::/:/bin/sh\n")
    stub_const("Probescope::Tracing::PrivateGroup::PASSWD", passwd)
    groups = {["alice", []] => 1000, ["alice", ["alice"]] => 1000, ["alice", %w[alice bob]] => nil,
              ["users", []] => nil}
    groups.each do |(name, members), gid|
      allow(Etc).to receive(:getgrgid).and_return(Struct.new(:name, :mem).new(name, members))
      expect(group.find(1000)).to eq(gid)
    end
    allow(Etc).to receive(:getgrgid).and_return(Struct.new(:name, :mem).new("alice", []))
    File.write(passwd, "bob:x:1001:1000::/:/bin/sh\n", mode: "a")
    expect(group.find(1000)).to be_nil
    expect(group.of(0)).to be_nil
  end

  it "does not cover files in a user-space file system" do
    bytes = File.binread(Support::HostTarget.binary)
    pid = hanging(bytes, bytes.bytesize + 4096, "trust-fuse")
    place = Probescope::Tracing::Reader.ask(:place, pid)
    expect { Probescope::Tracing::Reader.ask(:library, place, {}, [0]) }
      .to raise_error(Probescope::Tracing::Refused, /lies in a file system of FUSE/)
    expect(Probescope::Tracing::Reader.ask(:library, place, {}, nil).last).to be_a(File)
  end

  # If a process replaces its library with another file, bpftrace does not read that file.
  it "covers only the file that was checked" do
    process = host_target
    target = Probescope::Tracing::ProbedProcess.find(process.pid)
    _, file = target.library({}, [0])
    links = Probescope::Tracing::Links.new(hostile_folder.tap { |path| File.chmod(0o700, path) })
    links.add(file)
    process.stop(:KILL)
    expect(File.stat(Dir[links.pattern].first).ino).to eq(File.stat(Support::HostTarget.binary).ino)
    links.remove
  end

  it "applies to the bridge, which has --trust, too" do
    server = keep(Support::OtlpServer.new)
    copied { |copy| File.chown(stranger, nil, copy) }
    honest = copied(folder("honest"))
    words = ["otel", "--comm", "trust-desk", "--slow", "1ms", "--exceptions", "none",
             "--endpoint", server.endpoint]
    bridge = probescope_start(*words)
    bridge.await_line(/attached to 1 process \(#{honest.pid}\)/, stream: :err)
    expect(bridge.err).to match(/is left out: its library .*belongs to user #{stranger}; try: --trust/)
    bridge.stop(within: 15)
    probescope_start(*words, "--trust").await_line(/attached to 2 processes/, stream: :err)
  end
end
