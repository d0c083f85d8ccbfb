# frozen_string_literal: true

require "spec_helper"

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
