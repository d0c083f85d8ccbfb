# frozen_string_literal: true

require "spec_helper"
require "hostile/files"
require "probescope/host/descendants"
require "probescope/host/selection"
require "probescope/otel/program"
require "probescope/otel/watch"
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

  def pids_of(name) = Probescope::Host::Target.all.first.select { |one| one.name == name }.map(&:pid)

  it "leaves room in the bridge, also when it is full already" do
    stub_const("Probescope::Otel::Watch::MOST", 4)
    crowd(binary = named(name), stranger, 6)
    probes = Probescope::Otel::Program.new(slow: 1_000_000, exceptions: false, metrics: false,
                                           messages: false).probes
    said = []
    watch = Probescope::Otel::Watch.new(Probescope::Host::Order.of(pids: [], comm: name), probes) do |why|
      said << why
    end
    await("a full bridge") { watch.look.size == 4 }
    expect(said.uniq).to eq(["more than 4 processes: the others are left out"])
    honest = [host_target("--rows", 1, binary: binary), host_target("--rows", 1, binary: binary)].map(&:pid)
    await("the honest ones") { (honest - watch.look.map(&:pid)).empty? }
    found = watch.look.map(&:pid)
    expect(found.size).to eq(4)
    expect(watch.look.map(&:pid)).to match_array(found)
  end

  it "leaves room in a command" do
    crowd(binary = named(name), stranger, 6)
    honest = host_target("--rows", 1, binary: binary).pid
    selection = Probescope::Host::Selection.new(Probescope::Host::Order.of(pids: [], comm: name), most: 3)
    targets = selection.targets.map(&:pid)
    expect(targets.size).to eq(3)
    expect(targets).to include(honest)
    expect(selection.notes).to include(/processes are too many for one command: 4 are left out/)
  end

  # Titles are read for a second at most.
  it "leaves time for the titles of others" do
    mapper("--children", 5, "--user", stranger, hostile_file(Support::Hostile.elf))
    pids = Probescope::Host::Survey.pids
    owner = ->(pid) { Probescope::Host::Foreign.owner(pid) }
    stub_const("Probescope::Host::Named::MANY", 3)
    asked = nil
    allow(Probescope::Host::Reader).to(receive(:ask_each).and_wrap_original do |original, *words, **options|
      original.call(*words.tap do
        asked = words.last
      end, **options)
    end)
    Probescope::Host::Named.new("nobody-has-it").among(pids)
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
    own = Probescope::Host::Descendants.of(server.pid)
    stub_const("Probescope::Host::Descendants::MOST_READ", 100)
    found = Probescope::Host::Descendants.of(threads.pid, server.pid)
    expect(own.size).to eq(1)
    expect(found).to include(*own)
    expect(found.size).to be_between(2, 5)
  end
end
