# frozen_string_literal: true

require "spec_helper"
require "hostile/files"
require "probescope/host/links"
require "probescope/host/target"
require "support/host_helpers"
require "support/otlp_server"
require "support/process_trees"

# bpftrace reads the notes of each library as root. GIVEN several processes, THEN it reads no library that another user than root and the
# command's own could have written, unless --trust says so.
RSpec.describe "Trust in libraries", :bpf do
  stranger = 65_534

  # A process whose library is a copy that the block may change.
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

  it "is for files and folders of root alone; others are named, with what to do, and traced with --trust" do
    honest = host_target("--rows", 1)
    libraries = {copied(folder("a")) { |copy| File.chown(stranger, nil, copy) } => /belongs to user #{stranger}/,
                 copied(folder("b")) { |copy| File.chmod(0o775, copy) } => /may be written to by others than its owner/,
                 copied(folder("c", mode: 0o777)) => %r{lies in \S+/c, which may be written to by others},
                 copied(folder("d", user: stranger)) => %r{lies in \S+/d, which belongs to user #{stranger}}}
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

  it "is not asked for of one process; where none is left it is an error" do
    process = copied { |copy| File.chown(stranger, nil, copy) }
    expect(traced("-p", process.pid).first).to eq([process.pid])
    result = probescope("calls", "-p", process.pid, "--workers", "-d", 1)
    expect(result.status.exitstatus).to eq(1)
    expect(result.err).to match(/is left out: its library .* belongs to user #{stranger}\n  try: --trust/)
    expect(traced("-p", process.pid, "--workers", "--trust").first).to eq([process.pid])
  end

  it "is for files of the user who runs the command through sudo, too" do
    process = copied { |copy| File.chown(stranger, nil, copy) }
    expect(traced("-p", process.pid, "--workers", env: {"SUDO_UID" => stranger.to_s}).first).to eq([process.pid])
    expect(traced("-p", process.pid, "--workers", env: {"SUDO_UID" => "1"}).first).to eq([])
  end

  it "is not for what a file system in user space says" do
    bytes = File.binread(Support::HostTarget.binary)
    pid = hanging(bytes, bytes.bytesize + 4096, "trust-fuse")
    place = Probescope::Host::Reader.ask(:place, pid)
    expect { Probescope::Host::Reader.ask(:library, place, {}, [0]) }
      .to raise_error(Probescope::Host::Refused, /lies in a file system of FUSE/)
    expect(Probescope::Host::Reader.ask(:library, place, {}, nil).last).to be_a(File)
  end

  # A process that puts another file in the place of its library leads bpftrace to none.
  it "is in the file that was looked at" do
    process = host_target
    target = Probescope::Host::Target.find(process.pid)
    _, file = target.library({}, [0])
    links = Probescope::Host::Links.new(hostile_folder.tap { |path| File.chmod(0o700, path) })
    links.add(file)
    process.stop(:KILL)
    expect(File.stat(Dir[links.pattern].first).ino).to eq(File.stat(Support::HostTarget.binary).ino)
    links.remove
  end

  it "is what the bridge wants, and --trust there" do
    server = keep(Support::OtlpServer.new)
    copied { |copy| File.chown(stranger, nil, copy) }
    honest = copied(folder("honest"))
    words = ["otel", "--comm", "trust-desk", "--slow", "1ms", "--exceptions", "none", "--endpoint", server.endpoint]
    bridge = probescope_start(*words)
    bridge.await_line(/attached to 1 process \(#{honest.pid}\)/, stream: :err)
    expect(bridge.err).to match(/is left out: its library .*belongs to user #{stranger}; try: --trust/)
    bridge.stop(within: 15)
    probescope_start(*words, "--trust").await_line(/attached to 2 processes/, stream: :err)
  end
end
