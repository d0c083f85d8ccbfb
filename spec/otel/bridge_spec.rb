# frozen_string_literal: true

require "etc"
require "pty"
require "spec_helper"
require "support/host_helpers"
require "support/jaeger"
require "support/otlp_server"
require "support/process_trees"

RSpec.describe "probescope otel", :bpf do
  include Support::HostTarget

  # Makes calls of at least 2 ms, each with its own id; its children do the same.
  app = <<~RUBY
    $stdout.sync = true
    eval(<<~WORK, TOPLEVEL_BINDING, #{File.join(Support::ROOT, "spec/otel/work.rb").inspect}, 1)
      def slow = sleep(0.002)
      def work = loop { slow }
    WORK
    File.write("/proc/self/comm", ARGV[0]) if ARGV[0]
    ARGV[1].to_i.times { fork { work } }
    puts "ready"
    ARGV[1] ? Process.waitall : work
  RUBY

  def bridge(server, *arguments, env: {})
    child = probescope_start("otel", *arguments, "--slow", "1ms", "--exceptions", "none",
                             "--endpoint", server.endpoint, env: env)
    child.await_line(/attached to/, stream: :err)
    child
  end

  def pids(server) = server.spans.map { |resource, _| resource["process.pid"] }.uniq

  def exporter_of(bridge)
    rubies = children_of(bridge.pid).select do |pid|
      File.read("/proc/#{pid}/comm") == File.read("/proc/#{bridge.pid}/comm")
    end
    rubies.find { |pid| !reader?(pid) }
  end

  def bpftrace_of(bridge)
    children_of(bridge.pid).find { |pid| File.read("/proc/#{pid}/comm").start_with?("bpftrace") }
  end

  def files(pid) = Dir["/proc/#{pid}/fd/*"].map { |path| File.readlink(path) }
  def status(pid) = File.read("/proc/#{pid}/status").scan(/^(\w+):[ \t]*(.*)$/).to_h

  let(:server) { keep(Support::OtlpServer.new) }

  # GIVEN a bridge, THEN the exporter runs as nobody, without capabilities; WHEN the exporter or
  # bpftrace is killed, THEN the bridge starts a new one.
  it "exports as nobody, and restarts its parts when they die" do
    process = target(app).ready
    bridge = bridge(server, "-p", process.pid)
    await("spans") { server.spans.any? }
    expect(bridge.err).to match(/no OpenTelemetry span is around some calls of process #{process.pid}/)
    status = status(exporter_of(bridge))
    expect(status["Uid"].split.uniq).to eq([Etc.getpwnam("nobody").uid.to_s])
    expect(status.values_at("Groups", "CapInh", "CapPrm", "CapEff", "CapAmb").join).to match(/\A[\s0]*\z/)

    Process.kill(:KILL, exporter_of(bridge))
    bridge.await_line(/the exporter has ended/, stream: :err)
    before = server.spans.size
    await("spans again") { server.spans.size > before }
    # The exporter was forked by a supervisor that has files open which only root may read.
    expect(files(exporter_of(bridge)).grep(%r{/mem\z|/run/})).to be_empty
    expect(status(exporter_of(bridge))["NoNewPrivs"]).to eq("1")

    Process.kill(:KILL, bpftrace_of(bridge))
    bridge.await_line(/bpftrace has ended/, stream: :err)
    before = server.spans.size
    await("spans once more") { server.spans.size > before }

    # Spans on their way arrive. The bridge knows that events of the killed bpftrace are missing.
    bridge.signal(:KILL)
    process.await_off("function__slow1ms")
    expect(process).to be_alive
    report = JSON.parse(bridge.await_line(/{"received.*/, stream: :err)[0])
    expect(report["cut_short"]).to eq(1)
    expect(report["received"]["slow_calls"]).to eq(report["traces"]["exported"])
  end

  # GIVEN root's shell with a file open that only root may read, THEN the exporter has neither that
  # file nor the terminal. An attacker in the exporter could otherwise type commands into root's
  # shell.
  it "keeps root's terminal and open files from the exporter" do
    process = target(app).ready
    words = [RbConfig.ruby, Support::EXE, "otel", "-p", process.pid.to_s, "--slow", "1ms",
             "--endpoint", server.endpoint]
    secret = File.join(Dir.mktmpdir, "secret")
    File.write(secret, "", perm: 0o600)
    out, _, pid = PTY.spawn("sh", "-c", "exec 9<#{secret}; exec \"$@\"", "sh", *words)
    bridge = Struct.new(:pid).new(pid)
    await("spans", within: 60) { server.spans.any? }
    expect([files(pid).include?(secret), File.readlink("/proc/#{pid}/fd/0")])
      .to match([true, %r{\A/dev/pts/}])
    exporter = exporter_of(bridge)
    expect([files(exporter).include?(secret), File.readlink("/proc/#{exporter}/fd/0")])
      .to eq([false, "/dev/null"])
    session, terminal = File.read("/proc/#{exporter}/stat").rpartition(")").last.split.values_at(3, 4)
    expect([session, terminal]).to eq([exporter.to_s, "0"])
  ensure
    FileUtils.rm_rf(File.dirname(secret))
    Process.kill(:TERM, pid) if pid
    out&.each_line { nil } rescue nil # -- EIO marks the end
    Process.wait(pid) if pid
  end

  # Returns the processes with that name. Others may end meanwhile.
  def named(name)
    Dir["/proc/[0-9]*/comm"].filter_map do |path|
      path[/\d+/].to_i if File.read(path).chomp == name
    rescue SystemCallError
      nil
    end
  end

  it "traces new workers after others have ended, and a server that is restarted" do
    name = "ps-otel-spec"
    first = target(app, name, "2").ready
    bridge = bridge(server, "--comm", name, "--workers")
    await("both workers") { (children_of(first.pid) - pids(server)).empty? }
    dead = children_of(first.pid).first
    Process.kill(:KILL, dead)
    first.stop(:KILL)
    Process.kill(:KILL, *named(name))
    second = target(app, name, "2").ready
    await("the new workers", within: 30) { (children_of(second.pid) - pids(server)).empty? }
    expect(bridge.stop(within: 60)).to be_success, bridge.to_s
  end

  it "refuses a process that another bridge traces" do
    process = target(app).ready
    bridge(server, "-p", process.pid)
    second = probescope("otel", "-p", process.pid, "--endpoint", server.endpoint)
    expect(second.err).to match(/process #{process.pid} has another bridge already/)
    expect(second.status.exitstatus).to eq(1)
  end

  it "refuses invalid arguments, with a next step" do
    {["--endpoint", "no url"] => /"no url" is no URL.*try: --endpoint http:/m,
     ["--endpoint", "ftp://host"] => /is no URL of an OTLP/,
     ["--endpoint", "http://host:99999"] => /is no URL of an OTLP/,
     ["--slow", "soon"] => /"soon" is no time.*try: --slow 10ms/m,
     ["--slow", "100us"] => /no probe fires for calls under 1ms/, ["--comm", ""] => /a name is missing/,
     ["--exceptions", "some"] =>
       /"some" is none of costly, all, none.*try: --exceptions costly/m}.each do |arguments, message|
      result = probescope("otel", "-p", "1", *arguments)
      expect(result.err).to match(message)
      expect(result.status.exitstatus).to eq(2)
    end
    result = probescope("otel", "-p", "1", env: {"OTEL_EXPORTER_OTLP_PROTOCOL" => "grpc"})
    expect(result.err).to match(/asks for grpc; OTLP is sent as http.protobuf only/)
  end

  it "refuses processes that cannot be traced: an ended one, one without the library, one with an " \
     "old library" do
    older = host_target("--old")
    too_old = /process #{older.pid} .*does not have the probe function__slow10ms; try: update it there/
    {["-p", Process.pid] => /does not have probescope loaded/, ["-p", (2**22) + 1] => /there is no process/,
     ["-p", (2**22) + 1, "--workers"] => /there is no process/,
     ["-p", older.pid] => too_old}.each do |arguments, message|
      result = probescope("otel", *arguments)
      expect(result.err).to match(message)
      expect(result.status.exitstatus).to eq(1)
    end
  end

  # The bridge reports it once, nothing is lost, and the application is not disturbed.
  it "reports an endpoint that does not listen, or does not speak HTTP", :jaeger do
    Support::Jaeger.require! { |reason| skip reason }
    process = target(app).ready
    grpc = keep(Support::Jaeger.new).grpc
    [["http://127.0.0.1:1", /does not take them \(.*\); they wait/],
     [grpc, /does not take them \(.*\); they wait.*OTLP.HTTP/]].each do |endpoint, message|
      bridge = probescope_start("otel", "-p", process.pid, "--slow", "1ms", "--exceptions", "none",
                                "--endpoint", endpoint)
      bridge.await_line(message, stream: :err)
      expect(bridge.stop(within: 60)).to be_success, bridge.to_s
      report = JSON.parse(bridge.err.lines.grep(/received/).last[/\{.*/])
      expect(report.dig("traces", "dropped").values.sum).to eq(report.dig("received", "slow_calls"))
      expect(bridge.err.scan("they wait").size).to eq(1)
    end
    expect(process).to be_alive
  end
end
