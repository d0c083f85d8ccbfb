# frozen_string_literal: true

require "spec_helper"
require "support/host_helpers"

RSpec.describe "ps and doctor" do
  it "ps lists the processes that can be traced, and the probes in use", :bpf do
    process = host_target
    row = probescope("ps", "--json").json["rows"].find { |candidate| candidate["pid"] == process.pid }
    expect(row).to eq("pid" => process.pid, "name" => "host_target", "deleted" => false,
                      "runtime" => "ruby", "version" => "3.1.2", "abi" => 1, "library" => "0.1.0",
                      "enabled" => [])
    expect(probescope("ps").out).to match(/^ *#{process.pid}  host_target +ruby +3\.1\.2 +1  0\.1\.0/)
  end

  it "ps lists the fields that it can read of a newer and of an older library", :bpf do
    newer = host_target("--abi", 2)
    older = host_target("--old")
    rows = probescope("ps", "--json").json["rows"].to_h { |row| [row["pid"], row["abi"]] }
    expect(rows).to include(newer.pid => 2, older.pid => 1)
  end

  it "hot traces a process with a newer library", :bpf do
    told = probescope("hot", "-p", host_target("--abi", 2).pid, "-d", 1, "--by", "self", "--json").json
    expect(told["rows"].size).to eq(3)
  end

  it "doctor has a line for each thing checked", :bpf do
    result = probescope("doctor", "-p", host_target.pid)
    expect(result.status.exitstatus).to eq(0), result.out
    expect(result.out.lines).to all(match(/\A(ok|--)  \S/))
    ["Linux ", "uprobes", "tracefs on ", "bpftrace 0.", "the privilege to trace", "the native library",
     "its watcher", "on disk", "run-time probes \\(Probescope::Provider\\) by its own library"]
      .each { |what| expect(result.out).to match(/^(ok|--)  .*#{what}/) }
  end

  it "doctor runs a bpftrace program, and gives the reason when that fails", :bpf do
    expect(probescope("doctor").out).to include("ok  the privilege to trace: bpftrace has run a program\n")
    skip "no python3 here" unless system("python3", "--version", out: File::NULL)
    # The process has all capabilities, but the kernel forbids BPF.
    forbidden = ["python3", File.join(Support::ROOT, "spec/support/without_calls.py"), "bpf"]
    child = keep(Support::Child.new(*forbidden, RbConfig.ruby, Support::EXE, "doctor",
                                    env: Support.command_env))
    expect(child.wait.exitstatus).to eq(1)
    expect(child.out)
      .to match(/^NO  bpftrace does not run a program: .*; it says: .* -> run it as root on the host/)

    process = host_target
    child = keep(Support::Child.new(*forbidden, RbConfig.ruby, Support::EXE, "hot", "-p", process.pid.to_s,
                                    env: Support.command_env))
    expect(child.wait.exitstatus).to eq(1)
    expect(child.err).to match(
      /\Aprobescope: bpftrace failed: the kernel (forbids BPF here|does not take).*; it says: [^\n]+\n/
    )
    expect(child.err).to include("\n  try: run it as root on the host")
  end

  it "doctor and other commands report that a user namespace has no privilege" do
    unless system("unshare", "--user", "--map-root-user", "true", err: File::NULL)
      skip "no user namespaces here"
    end
    before = %w[unshare --user --map-root-user]
    before = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *before] if Process.uid.zero?
    {"doctor" => :out, "hot" => :err}.each do |command, stream|
      child = keep(Support::Child.new(*before, RbConfig.ruby, Support::EXE, command,
                                      *(%w[-p 1] if command == "hot"), env: Support.command_env))
      expect(child.wait.exitstatus).to eq(1)
      expect(child.public_send(stream))
        .to include("this is a user namespace (a rootless container, unshare -U)")
      expect(child.to_s).not_to include("belongs to user")
    end
  end

  it "doctor names each probe that is not served, with the reason", :bpf do
    out = probescope("doctor", "-p", host_target("--state", 2).pid).out
    expect(out).to include("--  function__stats is degraded: as the spec asked\n")
  end

  it "doctor gives a next step, and fails" do
    result = probescope("doctor", "-p", 4_194_305, "--json")
    expect(result.json["rows"].last).to include("state" => "bad", "next_step" => /probescope ps/)
  end
end
