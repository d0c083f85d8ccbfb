# frozen_string_literal: true

require "spec_helper"
require "probescope/tracing/bpftrace"
require "probescope/tracing/privilege"

RSpec.describe "The privilege to trace" do
  def privilege(uid:, effective: [], ambient: [])
    mask = lambda do |names|
      format("%016x", names.sum { |name| 1 << Probescope::Tracing::Capabilities::BITS.fetch(name) })
    end
    Probescope::Tracing::Privilege.new("Uid:\t#{uid}\t#{uid}\t#{uid}\t#{uid}\nCapEff:\t#{mask[effective]}\n" \
                                    "CapAmb:\t#{mask[ambient]}\n")
  end

  def bpftrace(version)
    Dir.mktmpdir do |folder|
      path = File.join(folder, "bpftrace")
      File.write(path, "#!/bin/sh\necho bpftrace v#{version}\n", perm: 0o755)
      return Probescope::Tracing::Bpftrace.new(path)
    end
  end

  let(:large) { Probescope::Tracing::Privilege::NEEDED }
  let(:small) { Probescope::Tracing::Privilege::SMALL }

  it "is present for root with the capabilities" do
    expect(privilege(uid: 0, effective: large).prefix(bpftrace("0.17.0"))).to eq([])
  end

  it "is absent for root without them, and sudo would not help" do
    expect { privilege(uid: 0, effective: %i[cap_sys_ptrace]).prefix }
      .to raise_error(Probescope::Tracing::Error, /root lacks CAP_SYS_ADMIN/)
  end

  it "comes from sudo for other users" do
    skip "no sudo here" unless Probescope::Tracing::Path.find("sudo")
    expect(privilege(uid: 1000, effective: large).prefix.first).to end_with("/sudo")
  end

  it "needs no sudo with ambient capabilities and a bpftrace that accepts them" do
    user = privilege(uid: 1000, effective: small, ambient: small)
    expect(user.prefix(bpftrace("0.27.1"))).to eq([])
    skip "no sudo here" unless Probescope::Tracing::Path.find("sudo")
    expect(user.prefix(bpftrace("0.23.2")).first).to end_with("/sudo")
  end

  it "rejects a bpftrace that is too old or prints no version" do
    expect { bpftrace("0.16.9") }.to raise_error(Probescope::Tracing::Error, /0\.16\.9.*0\.17 is the oldest/)
    expect { bpftrace("") }.to raise_error(Probescope::Tracing::Error, /of an unknown version/)
    expect(bpftrace("0.20.2-1ubuntu").version).to eq([0, 20, 2])
  end
end
