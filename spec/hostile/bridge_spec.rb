# frozen_string_literal: true

require "spec_helper"
require "hostile/files"
require "probescope/tracing/reader"
require "probescope/message"
require "probescope/otel/program"
require "probescope/otel/resource"
require "support/host_helpers"
require "support/otlp_server"

# GIVEN processes of one name of which some lie, WHEN a bridge traces all of them, THEN it names
# those that it leaves out with the reason, and the others' spans arrive.
RSpec.describe "probescope otel among hostile processes", :bpf do
  hostile = Support::Hostile
  message = Probescope::Message
  name = "hostile-desk"

  let(:server) { keep(Support::OtlpServer.new) }

  def named(folder, name)
    FileUtils.mkdir_p(File.join(hostile_folder, folder))
    File.join(hostile_folder, folder, name).tap { |copy| FileUtils.cp(Support::HostTarget.binary, copy) }
  end

  def bridge(*words)
    probescope_start("otel", *words, "--slow", "1ms", "--exceptions", "none", "--endpoint", server.endpoint)
  end

  # Returns the PIDs whose spans have arrived.
  def seen = server.spans.map { |resource, _| resource["process.pid"] }.uniq

  def stopped(child)
    expect(child.stop(within: 30)).to be_success, child.to_s
    expect(child.err).not_to match(/\.rb:\d|exporter has ended/)
  end

  # Returns the bytes of a probescope_info whose probes have their semaphores at this address.
  define_method(:full_info) do |semaphore|
    probes = Probescope::Otel::Program.new(slow: 1_000_000, exceptions: false, metrics: false,
                                           messages: false).probes
    hostile.info(probes.map { |probe| [probe, 1, 0, semaphore, ""] })
  end

  it "leaves out processes with false data, and traces the others" do
    honest = host_target("--rows", 2, binary: named("honest", name))
    odd = host_target("--rows", 2, binary: named("odd\xff\e[31m", name))
    library = named("poisoned", name)
    bytes = File.binread(library)
    at = bytes.index("probescope\0stats__done\0".b) + 23
    bytes[at, 10] = "\0" * 10
    File.binwrite(library, bytes)
    poisoned = host_target("--rows", 2, binary: library)
    info = full_info(hostile::AT + 0x1000)
    away = hostile(hostile.elf(full_info((1 << 64) - 1)), "--name", name)
    nowhere = hostile(hostile.elf(info, symbol: 0xffffffff00000000), "--name", name)
    context = hostile(hostile.elf(info), "--name", name, "--context", "0xffffffffffffffff", 100)
    child = bridge("--comm", name)
    await("spans", within: 40) { ([honest.pid, odd.pid] - seen).empty? }
    await("the reasons", within: 10) do
      [poisoned, away, nowhere].all? { |one| child.err.include?("process #{one.pid}") }
    end
    expect(child.err)
      .to match(/process #{poisoned.pid}.*stats__done of its library has 0 arguments and not 6/)
    expect(child.err).to match(/process #{away.pid}: it tells of 2 bytes at 0xffffffffffffffff/)
    expect(child.err).to match(/process #{nowhere.pid}: it (tells of|has no memory)/)
    expect(child.err).not_to include("process #{context.pid}")
    resource, = server.spans.find { |one, _| one["process.pid"] == odd.pid }
    expect(resource["process.executable.path"]).to end_with("/odd\u{fffd}\\e[31m/#{name}")
    stopped(child)
  end

  it "sends the valid attributes of a process context" do
    mixed = message.field(1, message.any("a")) + message.field(1, message.any(1))
    odd = message.field(1, "odd") + message.field(2, message.field(5, mixed))
    payload = message.field(1, message.field(1, message.pair("team", "shop")) + message.field(1, odd))
    content = full_info(hostile::AT + 0x1000).ljust(0x2000, "\0") + payload
    process = hostile(hostile.elf(content), "--name", name,
                      "--context", "0x#{(hostile::AT + 0x3000).to_s(16)}", payload.bytesize)
    reader = Probescope::Tracing::Reader
    known = reader.ask(:resource, reader.ask(:place, process.pid), {pid: 1, runtime: "ruby", version: "3.1"})
    expect(Probescope::Otel::Resource.published(known[:published])).to eq("team" => "shop")
    honest = host_target("--rows", 2, binary: named("honest", name))
    child = bridge("--comm", name)
    await("spans", within: 40) { seen.include?(honest.pid) }
    stopped(child)
  end

  it "continues when the reader of one of them hangs" do
    honest = host_target("--rows", 2, binary: named("honest", name))
    pid = hanging(hostile.elf(symbol: 0x40000).ljust(0x40000, "\0") + full_info(hostile::AT), 0x20000, name)
    child = bridge("--comm", name)
    await("spans", within: 40) { seen.include?(honest.pid) }
    await("the reason") { child.err.include?("process #{pid}: it was not read within 1 s") }
    stopped(child)
  end

  it "traces more processes than files can be open" do
    library = named("many", name)
    starter = "for i in $(seq 120); do #{library} --rows 1 >/dev/null & done; echo ready; wait"
    keep(Support::Child.new("sh", "-c", starter)).await_line(/\Aready$/)
    words = ["otel", "--comm", name, "--slow", "1ms", "--exceptions", "none", "--endpoint", server.endpoint]
    limited = ["sh", "-c", "ulimit -n 100; exec \"$@\"", "sh"]
    child = keep(Support::Child.new(*limited, RbConfig.ruby, Support::EXE, *words, env: Support.command_env))
    # On Linux 6.18, kernel threads that uprobes wait for may starve for a minute (decision 215).
    await("spans", within: 240) { seen.size == 120 }
    stopped(child)
  end
end
