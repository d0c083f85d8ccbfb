# frozen_string_literal: true

require "open3"
require "tmpdir"

# The skeletons work as they are written, and the places that they are inserted into are there.
RSpec.describe "rake new:command and new:probe", :slow do
  copied = %w[Rakefile Gemfile probescope.gemspec CONTRIBUTING.md README.md mkdocs.yml
              docs exe ext lib providers python rakelib spec tests]

  def run(*command, env: {})
    out, status = Open3.capture2e(env, *command, chdir: @copy)
    expect(status).to be_success, out
    out
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
    told = run(RbConfig.ruby, "-S", "rake", "new:command[gcs,gc__done]", "new:probe[thread__start]")
    expect(told).to include("wrote providers/gcs.bt.erb", "wrote ext/python/thread_hooks.c",
                            "1. `bundle exec rake 'new:command[")
    expect(run(RbConfig.ruby, "exe/probescope", "gcs", "--help")).to include("SHARE, COUNT, KIND")
    wheel = "from probescope.command.reports import REPORTS; REPORTS['gcs']"
    run(Support::Python.interpreter, "-c", wheel, env: {"PYTHONPATH" => "python"})
    expect(File.read("#{@copy}/providers/gcs.bt")).to include("$kind = str(arg0, 64);")
    expect(File.read("#{@copy}/ext/core/usdt/probes.gen.h"))
      .to include("void ps_fire_thread__start(uint64_t ")
    expect(File.read("#{@copy}/ext/core/features/features.c")).to include("    &ps_threads_feature,\n")
    compile("ext/core/features/threads.c", "ext/core/features/features.c")
    %w[ruby/probescope.c python/module.c].each do |path|
      expect(File.read("#{@copy}/ext/#{path}")).to include(" &ps_threads_hooks, &requests_hooks,")
    end
    compile("ext/ruby/thread_hooks.c", *ruby_headers)
    compile("ext/python/thread_hooks.c", "-I#{python_headers}")
  end
end
