# frozen_string_literal: true

require "spec_helper"
require "hostile/files"
require "probescope/tracing/descendants"
require "probescope/tracing/selection"
require "probescope/otel/program"
require "probescope/otel/supervisor"
require "support/host_helpers"

# A user may start more processes with a server's name than can be traced or read. The processes of
# other users are traced nevertheless.
RSpec.describe "A crowd of one user's processes", :bpf do
  stranger = 65_534
  name = "crowd-desk"

  def named(name)
    File.join(hostile_folder, name).tap do |copy|
      FileUtils.cp(Support::HostTarget.binary, copy) unless File.exist?(copy)
    end
  end

  def crowd(binary, user, size)
    become = "setpriv --reuid=#{user} --regid=#{user} --clear-groups"
    starter = "for i in $(seq #{size}); do #{become} #{binary} --rows 1 >/dev/null & done; echo ready; wait"
    shell = keep(Support::Child.new("sh", "-c", starter))
    shell.await_line(/\Aready$/)
    await("#{size} of them") { pids_of(File.basename(binary)).size >= size }
  end

  def pids_of(name)
    found, = Probescope::Tracing::ProbedProcess.all
    found.select { |one| one.name == name }.map(&:pid)
  end

  # Returns a bridge that starts no bpftrace and no exporter.
  def bridge(name, &say)
    program = Probescope::Otel::Program.new(slow: 1_000_000, exceptions: false, metrics: false,
                                            messages: false)
    order = Probescope::Tracing::Order.of(pids: [], comm: name)
    made = Probescope::Otel::Supervisor.new(order, program, nil, say)
    allow(made).to receive_messages(trace: nil, tell: nil)
    made.instance_variable_set(:@lock, instance_double(Probescope::Otel::Lock, take: true, release: nil))
    made
  end

  it "leaves room in the bridge, also when it is full already" do
    stub_const("Probescope::Otel::Quota::MOST", 4)
    crowd(binary = named(name), stranger, 6)
    said = []
    supervisor = bridge(name) { |line| said << line }
    pids = lambda do
      supervisor.send(:follow)
      supervisor.send(:members).map(&:pid)
    end
    await("a full bridge") { pids.call.size == 4 }
    expect(said.uniq).to eq(["more than 4 processes: the others are left out"])
    honest = [host_target("--rows", 1, binary: binary), host_target("--rows", 1, binary: binary)].map(&:pid)
    await("the honest ones") { (honest - pids.call).empty? }
    found = pids.call
    expect(found.size).to eq(4)
    expect(pids.call).to match_array(found)
  end

  it "leaves room in a command" do
    crowd(binary = named(name), stranger, 6)
    honest = host_target("--rows", 1, binary: binary).pid
    selection = Probescope::Tracing::Selection.new(Probescope::Tracing::Order.of(pids: [], comm: name),
                                                   most: 3)
    pids = selection.processes.map(&:pid)
    expect(pids.size).to eq(3)
    expect(pids).to include(honest)
    expect(selection.notes).to include(/processes are too many for one command: 4 are left out/)
  end

  # Titles are read for a second at most.
  it "leaves time for the titles of others" do
    mapper("--children", 5, "--user", stranger, hostile_file(Support::Hostile.elf))
    pids = Probescope::Tracing::Survey.pids
    owner = ->(pid) { Probescope::Tracing::Identity.owner(pid) }
    stub_const("Probescope::Tracing::Named::MANY", 3)
    asked = nil
    reader = Probescope::Tracing::Reader
    allow(reader).to(receive(:ask_each).and_wrap_original do |original, *words, **options|
      original.call(*words.tap do
        asked = words.last
      end, **options)
    end)
    Probescope::Tracing::Named.new("nobody-has-it").among(pids)
    users = asked.map(&owner).compact
    expect(users.first(users.uniq.size)).to match_array(users.uniq)
  end

  # One of the servers is a process of that user with 60 threads, and with four children that have
  # as many.
  it "does not hide other users' children behind its threads" do
    script =
      "4.times { break unless fork }; 60.times { Thread.new { sleep } }; puts 'ready'; $stdout.flush; sleep"
    become = %W[setpriv --reuid=#{stranger} --regid=#{stranger} --clear-groups]
    threads = keep(Support::Child.new(*become, RbConfig.ruby, "-e", script))
    await("all of them") { threads.out.scan("ready").size >= 5 }
    server = keep(Support::Child.new("sh", "-c", "#{Support::HostTarget.binary}; true"))
    server.await_line(/\Aready$/)
    own = Probescope::Tracing::Descendants.of(server.pid)
    stub_const("Probescope::Tracing::Descendants::MOST_READ", 100)
    found = Probescope::Tracing::Descendants.of(threads.pid, server.pid)
    expect(own.size).to eq(1)
    expect(found).to include(*own)
    expect(found.size).to be_between(2, 5)
  end
end
