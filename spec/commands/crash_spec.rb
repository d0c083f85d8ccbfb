# frozen_string_literal: true

require "spec_helper"
require "open3"

# What a user sees of a fault of probescope. Each example plants a fault in a copy of the command.
RSpec.describe "A fault of probescope" do
  around { |example| Dir.mktmpdir { |folder| (@folder = folder) && example.run } }

  # Makes a copy in which the method begins with a fault. Returns the line of the fault.
  def copy(file, method, fault = "nil.no_such_method")
    FileUtils.cp_r(%w[exe lib providers].map { |name| File.join(Support::ROOT, name) }, @folder)
    path = File.join(@folder, "lib/probescope", file)
    File.write(path, File.read(path).sub("def #{method}\n", "def #{method}\n#{fault}\n"))
    File.read(path).lines.index("#{fault}\n") + 1
  end

  def run(*words)
    child = keep(Support::Child.new(RbConfig.ruby, File.join(@folder, "exe/probescope"), *words))
    child.wait
    child
  end

  version = /probescope \d+\.\d+\.\d+, Ruby #{Regexp.escape(RUBY_VERSION)}, Linux \S+, bpftrace .+/

  it "in the helper is reported as a fault, with its place and what to send" do
    line = copy("tracing/helper.rb", "list")
    said = run("ps")
    error = /NoMethodError: .*no_such_method.*/
    what = %r{this is a fault of probescope \(the helper\): #{error} at tracing/helper\.rb:#{line}:in}
    expect(said.err).to match(/\Aprobescope: #{what}.*\n  try: report it as an issue .*: #{version}\n\z/)
    expect(said.wait.exitstatus).to eq(1)
  end

  # An exception's message may quote text from a traced process.
  it "is reported in a few escaped bytes" do
    copy("tracing/helper.rb", "list", 'raise "\e]0;owned\a\xff#{"x" * 5_000}"')
    said = run("ps").err
    expect(said).not_to match(/[^[:print:]\n]/)
    expect(said.lines.first).to include("owned")
    expect(said.lines.first.size).to be < 500
  end

  it "in the command is reported as a fault, too" do
    line = copy("commands/script.rb", "list")
    said = run("script")
    what = %r{this is a fault of probescope: NoMethodError: .* at commands/script\.rb:#{line}:in}
    expect(said.err).to match(/\Aprobescope: #{what}.*\n  try: report it as an issue .*: #{version}\n\z/)
    expect(said.wait.exitstatus).to eq(1)
  end

  it "in the wheel's command is reported as a fault, too", :python do
    package = File.join(@folder, "probescope")
    FileUtils.cp_r(File.join(Support::Python::PACKAGE, "probescope"), package)
    path = File.join(package, "command/script.py")
    File.write(path,
               File.read(path).sub("    if options.name:", "    options.no_such_name\n    if options.name:"))
    child = keep(Support::Child.new(Support::Python.interpreter, "-m", "probescope", "script",
                                    env: Support.plain_env.merge("PYTHONPATH" => @folder)))
    expect(child.wait.exitstatus).to eq(1)
    what =
      %r{this is a fault of probescope: AttributeError: .*no_such_name.* at command/script\.py:\d+ in run}
    version = /probescope \S+, CPython 3\.\S+, Linux \S+, bpftrace .+/
    expect(child.err).to match(/\Aprobescope: #{what}\n  try: report it as an issue .*: #{version}\n\z/)
  end

  it "is not reported when the reader of the output closes it early" do
    out, = Open3.capture2e("sh", "-c",
                           "(sleep 0.5; exec #{RbConfig.ruby} #{Support::EXE} script exceptions) | true")
    expect(out).to be_empty
  end

  it "is not reported when the helper was killed: the error names the signal" do
    copy("tracing/helper.rb", "list", "Process.kill(:KILL, Process.pid)")
    expect(run("ps").err).to match(
      /\Aprobescope: the helper that runs bpftrace ended \(KILL\)\n  try: run the command again\n\z/
    )
  end
end
