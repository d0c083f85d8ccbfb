# frozen_string_literal: true

require "spec_helper"
require "open3"
require "probescope/cli"
require "probescope/commands/slow"

RSpec.describe "run, script and help" do
  it "run becomes the command, with the library in its Ruby" do
    script = "p Process.pid, $LOADED_FEATURES.grep(%r{probescope/auto}).size, ARGV"
    result = probescope("run", "--", RbConfig.ruby, "-e", script, "a b", "--json")
    pid, loaded, arguments = result.out.lines
    expect(pid.to_i).to be_positive
    expect(loaded.to_i).to eq(1)
    expect(arguments).to eq(%(["a b", "--json"]\n))
  end

  it "run asks the package of a Python to load itself, and leaves one without it alone" do
    script = "import os, sys; print(os.environ['PROBESCOPE'], sys.argv[1:])"
    result = probescope("run", "--", Support::Python.interpreter, "-W", "error", "-c", script, "a b", "--json")
    expect([result.out, result.err]).to eq(["1 ['a b', '--json']\n", ""])
  end

  it "run hands on the exit status" do
    expect(probescope("run", "sh", "-c", "exit 7").status.exitstatus).to eq(7)
  end

  it "run keeps the RUBYOPT that is there, and the application's Bundler" do
    Dir.mktmpdir do |folder|
      File.write(File.join(folder, "Gemfile"), "source 'https://rubygems.org'\n")
      script = "p defined?(Bundler) ? 1 : 0, $VERBOSE, $LOADED_FEATURES.grep(%r{probescope/auto}).size"
      result = probescope("run", "--", "bundle", "exec", RbConfig.ruby, "-e", script,
                          env: {"RUBYOPT" => "-W2", "BUNDLE_GEMFILE" => File.join(folder, "Gemfile"), "BUNDLE_PATH" => nil,
                                "PATH" => Support::RUBY_PATH})
      expect(result.out.lines.map(&:chomp)).to eq(%w[1 true 1]), result.err
    end
  end

  it "run passes on which functions to cover" do
    result = probescope("run", "--functions", "Order#*", "--", "printenv", "PROBESCOPE_FUNCTIONS")
    expect(result.out).to eq("Order#*\n")
  end

  it "script prints the program itself" do
    expect(probescope("script", "exceptions").out).to eq(File.read(File.join(Support::ROOT, "providers/exceptions.bt")))
  end

  # Every command that runs a program: {name of a script => path of the program that the command runs}.
  def programs_of_commands
    commands = Probescope::CLI::COMMANDS.keys.map { |name| Probescope::CLI.command(name) }
    commands.select { |one| one < Probescope::Commands::Traced }.flat_map do |one|
      path = one.new.send(:program_path)
      name = one.name.split("::").last.downcase
      [[name, path], *([["#{name}_by_request", path.sub(".bt", "_by_request.bt")]] if one::BY_REQUEST)]
    end
  end

  it "every command that has a program is the name of a script, and each threshold of slow has one, in both languages" do
    thresholds = Probescope::Commands::Slow::PROGRAMS.values.flat_map { |file| [file, file.sub(".bt", "_by_request.bt")] }
    programs = programs_of_commands + thresholds.map { |file| [File.basename(file, ".bt"), Probescope::Host::Program.path(file)] }
    expect(programs.map(&:first)).to include("slow", "slow_by_request", "slow1ms", "hot_by_request", "stat", "flow", "requests")
    programs.each do |name, path|
      expect(probescope("script", name).out).to eq(File.read(path)), name
      command = [Support::Python.interpreter, "-m", "probescope", "script", name]
      out, status = Open3.capture2({"PYTHONPATH" => Support::Python::PACKAGE}, *command)
      expect([out, status.exitstatus]).to eq([File.read(path), 0]), name
    end
  end

  it "script alone lists each with its question" do
    expect(probescope("script").out).to match(/^hot +Which functions are on the CPU\?$/)
  end

  it "every command explains itself with examples" do
    %w[ps doctor run hot exceptions backtraces calls slow alloc script].each do |command|
      result = probescope(command, "--help")
      expect(result.status.exitstatus).to eq(0)
      expect(result.out).to match(/\AUsage: probescope #{command}.*^Options:.*^Examples:\n  probescope #{command}/m)
      expect(probescope("help", command).out).to eq(result.out)
      expect(probescope("--help").out).to match(/^  #{command} /)
    end
  end

  it "says its version" do
    expect(probescope("--version").out).to match(/\Aprobescope \d+\.\d+\.\d+\n\z/)
  end
end
