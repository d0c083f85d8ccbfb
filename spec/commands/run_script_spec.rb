# frozen_string_literal: true

require "spec_helper"
require "open3"
require "probescope/cli"
require "probescope/commands/slow"
require "probescope/tracing/path"

RSpec.describe "run, script and help" do
  it "run replaces itself with the command, and its Ruby loads the library" do
    script = "p Process.pid, $LOADED_FEATURES.grep(%r{probescope/auto}).size, ARGV"
    result = probescope("run", "--", RbConfig.ruby, "-e", script, "a b", "--json")
    pid, loaded, arguments = result.out.lines
    expect(pid.to_i).to be_positive
    expect(loaded.to_i).to eq(1)
    expect(arguments).to eq(%(["a b", "--json"]\n))
  end

  it "run sets PROBESCOPE for the package of a Python, and does not disturb a Python without it" do
    script = "import os, sys; print(os.environ['PROBESCOPE'], sys.argv[1:])"
    result = probescope("run", "--", Support::Python.interpreter, "-W", "error", "-c", script, "a b",
                        "--json")
    expect([result.out, result.err]).to eq(["1 ['a b', '--json']\n", ""])
  end

  it "run returns the command's exit status" do
    expect(probescope("run", "sh", "-c", "exit 7").status.exitstatus).to eq(7)
  end

  it "run keeps an existing RUBYOPT, and the application's Bundler" do
    Dir.mktmpdir do |folder|
      File.write(File.join(folder, "Gemfile"), "source 'https://rubygems.org'\n")
      script = "p defined?(Bundler) ? 1 : 0, $VERBOSE, $LOADED_FEATURES.grep(%r{probescope/auto}).size"
      result = probescope("run", "--", "bundle", "exec", RbConfig.ruby, "-e", script,
                          env: {"RUBYOPT" => "-W2", "BUNDLE_GEMFILE" => File.join(folder, "Gemfile"),
                                "BUNDLE_PATH" => nil,
                                "PATH" => Support::RUBY_PATH})
      expect(result.out.lines.map(&:chomp)).to eq(%w[1 true 1]), result.err
    end
  end

  it "run passes on the functions to cover" do
    result = probescope("run", "--functions", "Order#*", "--", "printenv", "PROBESCOPE_FUNCTIONS")
    expect(result.out).to eq("Order#*\n")
  end

  describe "run under sudo" do
    # A separate mount namespace has rules of sudo that allow everybody everything. The user has a
    # second group.
    around do |example|
      next skip("needs root and sudo") unless Process.uid.zero? && Probescope::Tracing::Path.find("sudo")

      Dir.mktmpdir do |folder|
        File.write(@rules = File.join(folder, "sudoers"), "ALL ALL=(ALL) NOPASSWD: ALL\n", perm: 0o440)
        example.run
      end
    end

    def under_sudo(*words, user: "daemon")
      mounted = "mount --bind #{@rules} /etc/sudoers; exec \"$@\""
      before = ["unshare", "-m", "sh", "-c", mounted, "sh", "setpriv", "--reuid=#{user}", "--regid=#{user}",
                "--init-groups", "sudo", "-n"]
      child = keep(Support::Child.new(*before, *words))
      child.wait
      child
    end

    shared_examples "gives the privileges back" do
      it "gives the privileges back, and reports it" do
        said = under_sudo(*command, "sh", "-c", "cat /proc/self/status; env; groups")
        expect(said.out).to match(/^Uid:(\t1){4}$/).and match(/^Gid:(\t1){4}$/)
          .and match(/^CapEff:\t0+$/).and match(/^CapPrm:\t0+$/)
        expect(said.out.lines(chomp: true))
          .to include("USER=daemon", "LOGNAME=daemon", "HOME=/usr/sbin", "daemon")
        expect(said.out).not_to match(/^(SUDO_|MAIL=)/)
        expect(said.out[/^Groups:\s+(.*)$/, 1].split).to eq(["1"])
        expect(said.err).to match(/\Aprobescope: `run` needs no sudo: the \w+ runs as daemon\n\z/)
      end

      it "refuses when it cannot give them back" do
        said = under_sudo("env", "SUDO_UID=123456789", *command, "id")
        expect([said.out, said.err.lines.size]).to eq(["", 2]), said.to_s
        expect(said.err)
          .to match(/\Aprobescope: sudo was called by user .123456789.,.*\n  try: run it without sudo/)
      end

      it "keeps root's privileges when root did not use sudo" do
        child = keep(Support::Child.new(*command, "id", "-u"))
        child.wait
        expect(child.out).to eq("0\n")
      end
    end

    context "by the gem's command" do
      let(:command) { [RbConfig.ruby, Support::EXE, "run", "--"] }

      include_examples "gives the privileges back"
    end

    context "by the wheel's command", :python do
      let(:command) do
        ["env", "PYTHONPATH=#{Support::Python::PACKAGE}", Support::Python.interpreter, "-m", "probescope",
         "run"]
      end

      include_examples "gives the privileges back"
    end
  end

  it "script prints the program" do
    expect(probescope("script", "exceptions").out)
      .to eq(File.read(File.join(Support::ROOT, "providers/exceptions.bt")))
  end

  # Every command that runs a program: {name of its script => path of its program}.
  # Where the program has another name than its command.
  names = {"hot" => "hot_own", "lines" => "lines_own", "record" => "stacks"}

  define_method(:programs_of_commands) do
    commands = Probescope::CLI::COMMANDS.keys.map { |name| Probescope::CLI.command(name) }
    commands.select { |one| one < Probescope::Commands::Measuring }.flat_map do |one|
      path = one.new.send(:program_path)
      name = one.name.split("::").last.downcase
      by_request = path.sub(/(_own)?\.bt/, "_by_request.bt")
      [[names.fetch(name, name), path], *([["#{name}_by_request", by_request]] if one::BY_REQUEST)]
    end
  end

  it "script has the program of every command and of each threshold of slow, in both languages", :slow do
    thresholds = Probescope::Tracing::Program::THRESHOLDS.values.flat_map do |name|
      ["#{name}.bt", "#{name}_by_request.bt"]
    end
    programs = programs_of_commands + thresholds.map do |file|
      [File.basename(file, ".bt"), Probescope::Tracing::Program.path(file)]
    end
    some = %w[slow slow_by_request slow1ms hot_by_request hot_own stacks stat flow requests]
    expect(programs.map(&:first)).to include(*some)
    programs.each do |name, path|
      expect(probescope("script", name).out).to eq(File.read(path)), name
      command = [Support::Python.interpreter, "-m", "probescope", "script", name]
      out, status = Open3.capture2({"PYTHONPATH" => Support::Python::PACKAGE}, *command)
      expect([out, status.exitstatus]).to eq([File.read(path), 0]), name
    end
  end

  it "script without a name lists each program with its question" do
    expect(probescope("script").out).to match(/^hot +Which functions are on the CPU\?$/)
  end

  it "every command has help with examples", :slow do
    %w[ps doctor run hot exceptions backtraces calls slow alloc script].each do |command|
      result = probescope(command, "--help")
      expect(result.status.exitstatus).to eq(0)
      expect(result.out)
        .to match(/\AUsage: probescope #{command}.*^Options:.*^Examples:\n  probescope #{command}/m)
      expect(probescope("help", command).out).to eq(result.out)
      expect(probescope("--help").out).to match(/^  #{command} /)
    end
  end

  it "--version prints the version" do
    expect(probescope("--version").out).to match(/\Aprobescope \d+\.\d+\.\d+\n\z/)
  end
end
