# frozen_string_literal: true

require "spec_helper"

# What spec/story_spec.rb cannot see: where the story cannot be told, its beginning says so.
RSpec.describe "bin/demo" do
  # As a user who has a sudo that says no, or none.
  %w[examples/traces.sh bin/demo].each do |script|
    it "says in one sentence that it needs root, before anything is installed: #{script}" do
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

    # GIVEN a rule without a password beside one with a password, WHEN `sudo -v` asks for it all the
    # same, THEN that is no refusal.
    it "takes a sudo that runs commands without a password, and would want one for `sudo -v`: #{script}" do
      skip "needs root" unless Process.uid.zero?
      Dir.mktmpdir do |folder|
        File.chmod(0o755, folder)
        File.write("#{folder}/sudo", "#!/bin/sh\ntest \"$1\" != -v\n", perm: 0o755)
        # Nothing is done after that question: each program of Ruby and Python succeeds, and does
        # nothing.
        env = Support.plain_env.merge("PATH" => "#{folder}:#{ENV.fetch("PATH")}", "JAEGER" => "/bin/true",
                                      "RUBY" => "/bin/true", "PYTHON" => "/bin/true")
        child = keep(Support::Child.new("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "bash",
                                        File.join(Support::ROOT, script), env: env))
        child.wait(within: 60)
        expect(child.err).not_to include("sudo does not let you")
      end
    end
  end

  it "says in one sentence what the machine lacks" do
    unless system("unshare", "--user", "--map-root-user", "true", err: File::NULL)
      skip "no user namespaces here"
    end
    child = keep(Support::Child.new("unshare", "--user", "--map-root-user", "bash",
                                    File.join(Support::ROOT, "bin/demo"), env: ENV.to_h))
    expect(child.wait(within: 120).exitstatus).to eq(1)
    expect(child.err).to match(/^demo: this machine cannot trace: NO  this is a user namespace .*\n\z/)
  end
end
