# frozen_string_literal: true

require "spec_helper"
require "probescope/tracing/path"
require "support/otlp_server"

# The bridge under sudo, with OpenTelemetry's gems installed for the user who called sudo.
RSpec.describe "The gems of probescope otel", :bpf do
  names = %w[opentelemetry-sdk opentelemetry-exporter-otlp opentelemetry-logs-sdk
             opentelemetry-exporter-otlp-logs opentelemetry-metrics-sdk opentelemetry-exporter-otlp-metrics]
  app = <<~RUBY
    $stdout.sync = true
    eval("def slow = sleep(0.002)", TOPLEVEL_BINDING,
         #{File.join(Support::ROOT, "spec/otel/work.rb").inspect}, 1)
    puts "ready"
    loop { slow }
  RUBY

  # Returns the gems with their dependencies, except for Ruby's default gems.
  def self.closure(names)
    names.reduce({}) do |found, name|
      spec = Gem.loaded_specs[name] || Gem::Specification.find_by_name(name)
      next found if spec.default_gem?

      found.merge(name => spec, **closure(spec.runtime_dependencies.map(&:name)).transform_keys(&:itself))
    end
  end

  # The user daemon gets a home with these gems, and sudo's rules allow everybody everything.
  around do |example|
    next skip("needs root and sudo") unless Process.uid.zero? && Probescope::Tracing::Path.find("sudo")

    Dir.mktmpdir(nil, "/var/lib") do |folder|
      File.chmod(0o755, folder)
      FileUtils.mkdir(@home = File.join(folder, "home"))
      @gems = File.join(@home, ".local/share/gem", Gem.ruby_engine, Gem.ruby_api_version)
      self.class.closure(names).each_value { |spec| install(spec) }
      FileUtils.chown_R("daemon", "daemon", @home)
      File.write(@passwd = File.join(folder, "passwd"),
                 File.read("/etc/passwd").sub(/^(daemon:.*:)[^:]*:([^:]*)$/, "\\1#{@home}:\\2"))
      File.write(@rules = File.join(folder, "sudoers"), "ALL ALL=(ALL) NOPASSWD: ALL\n", perm: 0o440)
      example.run
    end
  end

  def install(spec)
    extensions = "extensions/#{Gem::Platform.local}/#{Gem.extension_api_version}"
    {spec.full_gem_path => "gems/#{spec.full_name}",
     spec.loaded_from => "specifications/#{spec.full_name}.gemspec",
     spec.extension_dir => "#{extensions}/#{spec.full_name}"}.each do |from, to|
      next unless File.exist?(from)

      FileUtils.mkdir_p(File.dirname(File.join(@gems, to)))
      FileUtils.cp_r(from, File.join(@gems, to))
    end
  end

  def bridge(process, server)
    mounted = "mount --bind #{@passwd} /etc/passwd; mount --bind #{@rules} /etc/sudoers; exec \"$@\""
    before = ["unshare", "-m", "sh", "-c", mounted, "sh",
              "setpriv", "--reuid=daemon", "--regid=daemon", "--init-groups", "sudo", "-n"]
    arguments = ["otel", "-p", process.pid.to_s, "--slow", "1ms", "--exceptions", "none",
                 "--endpoint", server.endpoint]
    # Runs the command like an installed gem's. A checkout's command would find the gems that
    # bin/setup has installed.
    command = [RbConfig.ruby, "-I", File.join(Support::ROOT, "lib"), "-r", "probescope/cli",
               "-e", "exit Probescope::CLI.start(ARGV)"]
    keep(Support::Child.new(*before, *command, *arguments))
  end

  let(:server) { keep(Support::OtlpServer.new) }
  let(:process) { target(app).ready }

  it "are found in the user's home, and loaded with the user's privileges" do
    # The gem and its gemspec note the user who runs them.
    noted = File.join(@home, "noted")
    note = "File.write(#{noted.inspect}, " \
           "[Process.uid, File.read('/proc/self/status')[/^CapPrm.*/]].join(' ') + %(\\n), mode: 'a')\n"
    %w[gems/opentelemetry-sdk-*/lib/opentelemetry/sdk.rb
       specifications/opentelemetry-sdk-*.gemspec].each do |pattern|
      path = Dir["#{@gems}/#{pattern}"].first
      File.write(path, File.read(path).sub(/^(?!#)/, note))
    end
    child = bridge(process, server)
    child.await_line(/attached to/, stream: :err)
    await("spans") { server.spans.any? }
    expect(File.readlines(noted, chomp: true).uniq).to match([/\A1 CapPrm:\t0+\z/])
  end

  it "are not loaded if other users may change them" do
    File.chmod(0o777, File.join(@gems, "gems"))
    child = bridge(process, server)
    expect(child.wait.exitstatus).to eq(1), child.to_s
    weak = %r{others than its owner may write to \S+/gems}
    expect(child.err).to match(/\Aprobescope: daemon's gems are not loaded: #{weak}\n  try: chmod/)
  end

  it "are reported if they are missing, with the places searched and the command that installs them" do
    FileUtils.rm_rf(@gems)
    child = bridge(process, server)
    expect(child.wait.exitstatus).to eq(1), child.to_s
    expect(child.err)
      .to match(/needs gems .*: opentelemetry-sdk, .*; looked in .*#{Regexp.escape(@gems)}.*\n/)
    expect(child.err).to match(/^  try: sudo #{RbConfig.ruby} -S gem install opentelemetry-sdk /)
  end
end
