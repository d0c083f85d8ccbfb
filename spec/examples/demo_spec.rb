# frozen_string_literal: true

require "spec_helper"

# spec/story_spec.rb cannot check this: if the demo cannot run, its beginning reports why.
RSpec.describe "bin/demo" do
  # Runs as a user without sudo, or with a sudo that refuses.
  %w[examples/traces.sh bin/demo].each do |script|
    it "reports in one sentence that it needs root, before it installs anything: #{script}" do
      skip "needs root" unless Process.uid.zero?
      nobody = %w[setpriv --reuid=65534 --regid=65534 --clear-groups]
      began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      env = Support.plain_env.merge("JAEGER" => "/bin/true")
      child = keep(Support::Child.new(*nobody, "bash", File.join(Support::ROOT, script), env: env))
      expect(child.wait.exitstatus).to eq(1)
      expect(child.out).to be_empty
      expect(child.err).to match(
        /\A(demo|traces): (tracing|the bridge) needs root, and sudo does not let you.*\n(  try: .*\n)?\z/
      )
      expect(Process.clock_gettime(Process::CLOCK_MONOTONIC) - began).to be < 10
    end

    # GIVEN a sudo rule without a password and one with a password, WHEN `sudo -v` asks for a
    # password, THEN the script does not take that for a refusal.
    it "accepts a sudo that runs commands without a password, even if `sudo -v` needs one: #{script}" do
      skip "needs root" unless Process.uid.zero?
      Dir.mktmpdir do |folder|
        File.chmod(0o755, folder)
        File.write("#{folder}/sudo", "#!/bin/sh\ntest \"$1\" != -v\n", perm: 0o755)
        # After that check nothing happens: each Ruby and Python program succeeds at once.
        env = Support.plain_env.merge("PATH" => "#{folder}:#{ENV.fetch("PATH")}", "JAEGER" => "/bin/true",
                                      "RUBY" => "/bin/true", "PYTHON" => "/bin/true")
        child = keep(Support::Child.new("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "bash",
                                        File.join(Support::ROOT, script), env: env))
        child.wait(within: 60)
        expect(child.err).not_to include("sudo does not let you")
      end
    end
  end

  it "refuses words that it does not know" do
    demo = File.join(Support::ROOT, "bin/demo")
    child = keep(Support::Child.new("bash", demo, "wait", env: Support.plain_env))
    expect(child.wait.exitstatus).to eq(2)
    expect(child.err).to eq("usage: bin/demo [waits]\n")
  end

  it "ends with a page for each language that compares the program and its fix", :bpf, :python,
     full: "takes minutes", within: 900 do
    # The files of an earlier run are no obstacle.
    stale = %w[ruby python].flat_map { |of| ["#{of}-before.pb.gz", "#{of}-after.pb.gz", "#{of}.html"] }
    folder = File.join(Support::ROOT, "tmp/demo")
    FileUtils.mkdir_p(folder)
    stale.each { |name| File.write("#{folder}/#{name}", "") }
    env = Support.plain_env.merge("RUBY" => RbConfig.ruby, "PYTHON" => Support::Python.interpreter)
    child = keep(Support::Child.new("bash", File.join(Support::ROOT, "bin/demo"), env: env))
    expect(child.wait(within: 850)).to be_success, child.to_s
    pages = child.out[/^These pages show .*\n((?:  .*\n)+)\z/, 1].lines.map(&:strip)
    expect(pages).to eq(%w[ruby python].map { |name| "#{folder}/#{name}.html" })
    data = %r{^<script type="application/octet-stream" id="(\w+)">}
    expect(pages.map { |page| File.read(page).scan(data).flatten }).to all(eq(%w[before data]))
    expect(child.out.scan(/^CHANGE .*\n.*-\d.* (Crc32\S*)/).flatten).to eq(%w[Crc32#of Crc32.of])
  end

  it "reports in one sentence what the machine lacks", :slow, full: "compiles the gem once more" do
    unless system("unshare", "--user", "--map-root-user", "true", err: File::NULL)
      skip "no user namespaces here"
    end
    child = keep(Support::Child.new("unshare", "--user", "--map-root-user", "bash",
                                    File.join(Support::ROOT, "bin/demo"), env: ENV.to_h))
    expect(child.wait(within: 120).exitstatus).to eq(1)
    expect(child.err).to match(/^demo: this machine cannot trace: NO  this is a user namespace .*\n\z/)
  end
end
