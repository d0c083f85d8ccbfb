# frozen_string_literal: true

require "etc"
require "spec_helper"
require "probescope/tracing/path"
require "support/otlp_server"
require "support/process_trees"

# The privileges with which the bridge starts, and its error if they do not suffice.
RSpec.describe "The privilege of probescope otel", :bpf do
  app = <<~RUBY
    $stdout.sync = true
    eval(<<~WORK, TOPLEVEL_BINDING, #{File.join(Support::ROOT, "spec/otel/work.rb").inspect}, 1)
      def slow = sleep(0.002)
    WORK
    puts "ready"
    loop { slow }
  RUBY
  user = %w[setpriv --reuid=daemon --regid=daemon --clear-groups]

  let(:server) { keep(Support::OtlpServer.new) }
  let(:process) { target(app).ready }

  def bridge(*before, env: {})
    arguments = ["otel", "-p", process.pid.to_s, "--slow", "1ms", "--exceptions", "none",
                 "--endpoint", server.endpoint]
    keep(Support::Child.new(*before, RbConfig.ruby, Support::EXE, *arguments,
                            env: Support.command_env.merge(env)))
  end

  def refused(*before)
    child = bridge(*before)
    expect(child.wait.exitstatus).to eq(1), child.to_s
    child.err
  end

  def exporter(bridge)
    Dir["/proc/[0-9]*/status"].map { |path| File.read(path) }.find do |status|
      status.match?(/^PPid:\t#{bridge}$/) &&
        !status.match?(/^Name:\tbpftrace/) && !reader?(status[/^Pid:\t(\d+)/, 1])
    rescue Errno::ESRCH
      nil
    end
  end

  # Returns exactly the capabilities in docs/how-to/run-the-bridge-as-a-service.md.
  def capabilities
    return small if (Support::Bpf.version <=> [0, 25]) >= 0

    %w[sys_admin sys_ptrace dac_read_search setuid setgid kill]
  end

  def small = %w[bpf perfmon sys_ptrace dac_read_search dac_override checkpoint_restore kill]
  def only(names) = ["-all", *names.map { |name| "+#{name}" }].join(",")

  # GIVEN a user without privilege, THEN the bridge prints a command with sudo, which works if sudo
  # allows it.
  it "comes from sudo, and the error has the command" do
    message = refused(*user)
    expect(message).to match(/\Aprobescope: tracing needs root/)
    skip "no sudo here" unless Probescope::Tracing::Path.find("sudo")
    expect(message[/^  try: (.*)$/, 1])
      .to start_with("sudo -E env \"PATH=$PATH\" probescope otel -p #{process.pid} --slow 1ms")

    rules = File.join(Support::ROOT, "tmp/sudoers")
    File.write(rules, "ALL ALL=(ALL) NOPASSWD: ALL\n", perm: 0o440)
    with_rules = ["unshare", "-m", "sh", "-c", "mount --bind #{rules} /etc/sudoers; exec \"$@\"", "sh"]
    child = bridge(*with_rules, *user, "sudo", "-n", "-E", "env", "PATH=#{ENV.fetch("PATH")}")
    child.await_line(/attached to/, stream: :err)
    await("spans") { server.spans.any? }
  ensure
    FileUtils.rm_f(rules) if rules
  end

  it "is a small set of root's capabilities" do
    child = bridge("setpriv", "--bounding-set", only(capabilities | %w[setuid setgid]), "--inh-caps=-all",
                   "--no-new-privs")
    child.await_line(/attached to/, stream: :err)
    await("spans") { server.spans.any? }
    expect(child.stop(within: 60)).to be_success

    expect(refused("setpriv", "--bounding-set", only((capabilities | %w[setuid]) - %w[sys_ptrace setgid])))
      .to match(
        /root lacks CAP_SYS_PTRACE and CAP_SETGID here\n  try: .* --cap-add SYS_PTRACE --cap-add SETGID/
      )
  end

  # GIVEN a user with ambient capabilities, THEN the exporter has none of them, though it runs as
  # the same user.
  it "is ambient capabilities of a user, if bpftrace accepts them" do
    ambient = [*user, "--inh-caps", only(small), "--ambient-caps", only(small)]
    if (Support::Bpf.version <=> [0, 25]).negative?
      next expect(refused(*ambient)).to match(/tracing needs root\n/)
    end

    child = bridge(*ambient)
    child.await_line(/attached to/, stream: :err)
    await("spans") { server.spans.any? }
    status = exporter(child.pid).scan(/^(\w+):[ \t]*(.*)$/).to_h
    expect(status["Uid"].split.uniq).to eq([Etc.getpwnam("daemon").uid.to_s])
    expect(status.values_at("CapInh", "CapPrm", "CapEff", "CapAmb").join).to match(/\A0*\z/)
    fewer = only(small - %w[bpf])
    expect(refused(*user, "--inh-caps", fewer, "--ambient-caps", fewer))
      .to match(/ambient capabilities: CAP_BPF\n/)
  end
end
