# frozen_string_literal: true

require "open3"
require "tmpdir"

# The skeletons work as they are written, and the places that they are inserted into are there.
RSpec.describe "rake new:command and new:probe", :slow do
  copied = %w[Rakefile Gemfile probescope.gemspec CONTRIBUTING.md README.md mkdocs.yml
              docs exe ext lib page providers python rakelib spec tests]

  def run(*command, env: {}, success: true)
    out, status = Open3.capture2e(env, *command, chdir: @copy)
    expect(status.success?).to eq(success), out
    out
  end

  def rake(*arguments, **options) = run(RbConfig.ruby, "-S", "rake", *arguments, **options)

  def git(*arguments) = run("git", "-c", "user.name=spec", "-c", "user.email=spec@localhost", *arguments)

  # Returns the contents of all files of the copy.
  def contents
    Dir.glob("**/*", base: @copy).map { |path| File.join(@copy, path) }.select { |path| File.file?(path) }
       .to_h { |path| [path, File.binread(path)] }
  end

  def compile(*files_and_flags)
    run("cc", "-fsyntax-only", "-Wall", "-Werror", "-D_GNU_SOURCE", "-Iext/core", *files_and_flags)
  end

  def ruby_headers
    %w[rubyhdrdir rubyarchhdrdir].map { |folder| "-I#{RbConfig::CONFIG.fetch(folder)}" }
  end

  def python_headers
    run(Support::Python.interpreter, "-c", "import sysconfig; print(sysconfig.get_path('include'))").chomp
  end

  around do |example|
    Dir.mktmpdir do |folder|
      @copy = folder
      copied.each { |path| FileUtils.cp_r(File.join(Support::ROOT, path), folder) }
      example.run
    end
  end

  it "write a command that both hosts have, and a probe of both languages" do
    told = rake("new:command[gcs,gc__done]", "new:probe[thread__start]")
    expect(told).to include("wrote providers/gcs.bt.erb", "wrote ext/python/threads_hooks.c",
                            "1. `bundle exec rake 'new:command[")
    expect(run(RbConfig.ruby, "exe/probescope", "gcs", "--help")).to include("SHARE, COUNT, KIND")
    wheel = "from probescope.command.reports import REPORTS; REPORTS['gcs']"
    run(Support::Python.interpreter, "-c", wheel, env: {"PYTHONPATH" => "python"})
    expect(File.read("#{@copy}/providers/gcs.bt")).to include("$kind = str(arg0, 64);")
    expect(File.read("#{@copy}/ext/core/usdt/probes.gen.h"))
      .to include("void ps_fire_thread__start(uint64_t ")
    expect(File.read("#{@copy}/ext/core/features/features.c")).to include("    &ps_threads_feature,\n")
    compile("ext/core/features/threads.c", "ext/core/features/features.c")
    expect(File.read("#{@copy}/ext/ruby/probescope.c")).to include(" &ps_threads_hooks, &requests_hooks,")
    expect(File.read("#{@copy}/ext/python/module.c"))
      .to include("            &ps_threads_hooks,\n            &requests_hooks,\n")
    compile("ext/ruby/threads_hooks.c", *ruby_headers)
    compile("ext/python/threads_hooks.c", "-I#{python_headers}")
  end

  # Ruby's build knows ext/ruby/methods.c and ext/core/features/methods.c by one name.
  it "refuse a name that is taken, with the reason, and write a feature of another name" do
    before = contents
    expect(rake("new:probe[method__redefined]", success: false))
      .to include('the name "methods" of the feature is taken: ext/ruby/methods.c, ext/ruby/methods.h',
                  "rake 'new:probe[method__redefined,method_redefined]'")
    expect(rake("new:probe[method__redefined,greenlets]", success: false))
      .to include("ps_greenlets_hooks in ext/python/hooks.h")
    expect(contents).to eq(before)
    expect(rake("new:probe[method__redefined,method_redefined]")).not_to include("has the feature")
    lines = File.readlines("#{@copy}/ext/core/features/features.c").grep(/^#include "features/)
    expect(lines).to include(%(#include "features/method_redefined.h"\n)).and eq(lines.sort)
    compile("ext/core/features/method_redefined.c", "ext/core/features/features.c")
    compile("ext/ruby/method_redefined_hooks.c", *ruby_headers)
    written = contents.keys
    expect(rake("new:probe[method__removed,method_redefined]"))
      .to include("features/method_redefined.c has the feature: add PS_BIT(METHOD__REMOVED) to its probes")
    expect(contents.keys).to eq(written)
  end

  it "write nothing if one of the places for their texts is not there" do
    File.write("#{@copy}/mkdocs.yml", "")
    File.write("#{@copy}/ext/python/module.c", "")
    before = contents
    expect(rake("new:command[gcs,gc__done]", success: false)).to match(/mkdocs\.yml matches .* 0 times/)
    expect(rake("new:probe[thread__start]", success: false)).to match(/module\.c matches .* 0 times/)
    expect(contents).to eq(before)
  end

  it "print the commands that take all of it back" do
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "-m", "before")
    [%w[new:probe[thread__start]], %w[new:command[gcs,gc__done]]].each do |task|
      commands = rake(*task)[/^To start again.*\n((?:  .*\n)+)/, 1]
      expect(git("status", "--porcelain")).not_to be_empty
      run("sh", "-ec", commands.sub("bundle exec", "#{RbConfig.ruby} -S"))
      expect(git("status", "--porcelain")).to be_empty
    end
  end
end
