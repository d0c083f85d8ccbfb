# frozen_string_literal: true

require "bundler"
require "open3"
require_relative "support/libstapsdt"

# Each way in which a user gets the gem, run in its own directory.
RSpec.describe "The gem", :slow do
  around { |example| Dir.mktmpdir { |dir| (@dir = dir) && example.run } }

  let(:dir) { @dir }
  # These specs only check whether the extension compiles. Its optimization would take two thirds of
  # the time.
  let(:env) do
    Support.plain_env.merge("PATH" => Support::RUBY_PATH, "GEM_HOME" => "#{dir}/gems",
                            "GEM_PATH" => "#{dir}/gems", "BUNDLE_PATH" => nil,
                            "make" => "make -j2 optflags=-O0 debugflags=").compact
  end
  let(:status) { "require 'probescope/auto'; p Probescope.status.slice(:available, :installed, :reason)" }

  # Matches a Hash as Ruby 3.1 or Ruby 3.4 inspects it.
  def say(facts) = facts.map { |name, value| match(/\b#{name}(=>|: )#{value}\b/) }.reduce(:and)

  # Runs a command in a clean environment with the `ruby` and `bundle` of this Ruby. Returns its
  # output.
  def sh(*command, chdir: dir, with: {})
    out, status = Open3.capture2e(env.merge(with), *command, chdir: chdir, unsetenv_others: true)
    raise "#{command.join(" ")}\n#{out}" unless status.success?

    out
  end

  def ruby(*arguments, **options) = sh(RbConfig.ruby, *arguments, **options)

  # Returns the gem's dependencies, from Bundler's cache without the network, and the gem.
  def build_gems
    ruby "-S", "gem", "build", "-o", "#{dir}/probescope.gem", "probescope.gemspec", chdir: Support::ROOT
    [*dependencies, "#{dir}/probescope.gem"]
  end

  def dependencies(of = "probescope")
    Gem.loaded_specs.fetch(of).runtime_dependencies.flat_map do |gem|
      [*dependencies(gem.name), Gem.loaded_specs.fetch(gem.name).cache_file]
    end
  end

  # Copies only the gem's files, because other files of the checkout must not help.
  def unpack(to)
    specification = Dir.chdir(Support::ROOT) { Gem::Specification.load("probescope.gemspec") }
    (specification.files + ["probescope.gemspec"]).each do |path|
      FileUtils.mkdir_p(File.join(to, File.dirname(path)))
      FileUtils.cp(File.join(Support::ROOT, path), File.join(to, path))
    end
    to
  end

  def bundle(gemfile)
    ruby "-S", "gem", "install", "--no-document", "--local", *dependencies unless dependencies.empty?
    File.write("#{dir}/Gemfile",
               "source 'https://rubygems.org'\ngem 'probescope', #{gemfile}, require: 'probescope/auto'\n")
    ruby "-S", "bundle", "install", "--local", "--quiet"
  end

  # GIVEN a bundle, WHEN the application requires its gems, THEN the probes are installed.
  def required_by_bundler
    ruby "-S", "bundle", "exec", "ruby",
         "-e", "Bundler.require; p Probescope.status.slice(:available, :installed, :reason)"
  end

  it "builds and installs with its extension and its command, and RUBYOPT loads it" do
    ruby "-S", "gem", "install", "--no-document", "--local", *build_gems
    expect(ruby("-e", status)).to say(available: true, installed: true)
    expect(sh("#{dir}/gems/bin/probescope", "--help")).to start_with("Usage: probescope")
    out = ruby("-e", "p Probescope.status[:installed]", with: { "RUBYOPT" => "-rprobescope/auto" })
    expect(out).to eq("true\n")
  end

  it "has no dependencies" do
    expect(Gem.loaded_specs.fetch("probescope").runtime_dependencies).to eq([])
  end

  it "works through Bundler's path:, from a compiled checkout" do
    bundle "path: #{Support::ROOT.inspect}"
    expect(required_by_bundler).to say(installed: true)
  end

  it "works through Bundler's git:", full: "compiles the gem once more" do
    repository = unpack("#{dir}/repository")
    identity = { "GIT_AUTHOR_NAME" => "a", "GIT_AUTHOR_EMAIL" => "a@example.org",
                 "GIT_COMMITTER_NAME" => "a", "GIT_COMMITTER_EMAIL" => "a@example.org" }
    sh "git", "init", "-q", "-b", "main", chdir: repository
    sh "git", "add", ".", chdir: repository
    sh "git", "commit", "-q", "-m", "gem", chdir: repository, with: identity
    bundle "git: #{repository.inspect}, branch: \"main\""
    expect(required_by_bundler).to say(installed: true)
  end

  # Runs an application with its own probes and a gem that was built with this libstapsdt. Returns
  # what `doctor` reports.
  def use_gem_on(prefix, arguments)
    ruby "-S", "gem", "install", "--no-document", "--local", *build_gems, "--", "--with-stapsdt-dir=#{prefix}"
    shop = keep(Support::Child.new(RbConfig.ruby, "-rprobescope",
                                   "#{Support::ROOT}/spec/support/on_a_libstapsdt.rb", env: env))
    shop.await_line(%r{^library #{prefix}/lib/libstapsdt\.so\S* #{arguments}$})
    expect(shop.out.lines.first)
      .to eq("false false true true true false true true false true true false true\n")
    one = tracer('usdt:*:shop:checkout { printf("%s %d %d\n", str(arg0), arg1, arg2); exit(); }',
                 pid: shop.pid)
    one.await_line(/^basket -3 255$/)
    shop.await_line(/^unloaded true false false$/)
    expect(shop.wait).to be_success
    sh("#{dir}/gems/bin/probescope doctor || true")[/^.*run-time probes.*$/]
  end

  it "uses a libstapsdt with --with-stapsdt-dir, and doctor reports it",
     :bpf, full: "compiles the gem once more" do
    Support::LibStapsdt.build
    expect(use_gem_on(Support::LibStapsdt::PREFIX, 12))
      .to end_with("(Probescope::Provider) by #{Support::LibStapsdt::PREFIX}/lib/libstapsdt.so.0")
  end

  # See spec/libstapsdt_spec.rb.
  it "uses upstream's libstapsdt, and doctor reports it", :bpf do
    upstream =
      "#{ENV["PROBESCOPE_UPSTREAM"] || skip("PROBESCOPE_UPSTREAM leads to no libstapsdt")}/libstapsdt"
    prefix = "#{dir}/upstream"
    FileUtils.mkdir_p(["#{prefix}/include", "#{prefix}/lib"])
    FileUtils.cp("#{upstream}/src/libstapsdt.h", "#{prefix}/include")
    %w[libstapsdt.so libstapsdt.so.0].each do |name|
      FileUtils.cp("#{upstream}/out/libstapsdt.so.0", "#{prefix}/lib/#{name}")
    end
    limits = "no semaphores, six arguments at most -> gem install probescope without"
    expect(use_gem_on(prefix, 6))
      .to include("(Probescope::Provider) by #{prefix}/lib/libstapsdt.so.0: #{limits}")
  end

  # GIVEN a checkout, WHEN its command is started without Bundler, THEN the command also finds gems
  # that bin/setup has installed.
  it "has a command that works in a checkout after bin/setup" do
    checkout = unpack("#{dir}/checkout")
    gems = FileUtils.mkdir_p("#{checkout}/vendor/bundle/#{Gem.ruby_engine}/#{Gem.ruby_api_version}").first
    started = "ARGV.replace(%w[--version]); begin; load '#{checkout}/exe/probescope'; rescue SystemExit; " \
              "puts Gem.path; end"
    expect(ruby("-e", started).lines(chomp: true)).to include(gems, "#{dir}/gems")
    incomplete = "require '#{checkout}/lib/probescope/cli'; puts Probescope::CLI.complete"
    expect(ruby("-e", incomplete)).to eq("install probescope anew\n")
    FileUtils.mkdir_p("#{checkout}/bin")
    FileUtils.touch("#{checkout}/bin/setup")
    expect(ruby("-e", incomplete)).to eq("#{checkout}/bin/setup run\n")
  end

  def newer_rubygems?
    ruby("-rrubygems/ext", "-e", "p Gem::Ext::Builder.const_defined?(:NoMakefileError)") == "true\n"
  end

  # Installs with only these tools in PATH. make: the variable that names make for RubyGems.
  def install_with(*names, make: nil)
    tools = FileUtils.mkdir_p("#{dir}/tools").first
    names.each { |name| File.symlink(tool("sh", "-c", "command -v #{name}").strip, File.join(tools, name)) }
    install = ["-e", "require 'rubygems/gem_runner'; Gem::GemRunner.new.run(ARGV)", "--", "install",
               "--no-document", "--local"]
    ruby(*install, *build_gems, with: { "PATH" => tools, "make" => make })
  end

  it "installs as a no-op without a compiler, and gives the reason" do
    expect(install_with(*%w[sh env make rm mkdir install touch]))
      .to match(/\d gems? installed/).and include("`probescope doctor` says")
    expect(ruby("-e", status)).to say(available: false).and include("compiler")
    told = sh("#{dir}/gems/bin/probescope", "run", "--", "true")
    expect(told).to match(
      /\Aprobescope: programs of Ruby \S+ have no probes: the native library was not built: .*compiler.*\n\z/
    )
  end

  # GIVEN a compiled gem, which has no ext/, WHEN a Ruby loads it whose platform is x86_64-linux, as
  # in most builds, THEN the gem has its library; WHEN the gem has no library for a Ruby, THEN it
  # reports what to do.
  it "comes compiled for Rubies of any build, and reports which Rubies it supports" do
    machine = RbConfig::CONFIG["arch"]
    skip "this Ruby calls its machine #{machine}" unless machine.end_with?("-linux-gnu")
    FileUtils.cp_r("#{Support::ROOT}/lib", dir)
    FileUtils.rm_f("#{dir}/lib/probescope/unavailable.txt")
    load = "RbConfig::CONFIG['arch'] = ARGV[0]; require '#{dir}/lib/probescope'; puts Probescope.install, " \
           "Probescope.unavailable_reason"
    expect(ruby("-rrbconfig", "-e", load, machine.delete_suffix("-gnu"))).to eq("true\n\n")
    told = ruby("-rrbconfig", "-e", load, machine.sub("-gnu", "-musl"))
    has = /and this gem has it for .*#{machine}/
    expect(told).to match(/\Afalse\n.* not built for this Ruby \(\S+-linux-musl\), #{has}; .* builds it$/)
  end

  # Runs extconf.rb in its folder, as RubyGems does. setup: Ruby code that runs before.
  def extconf(checkout, setup = "", **options)
    ruby("-rrbconfig", "-e", "#{setup}; load 'extconf.rb'", chdir: "#{checkout}/ext/ruby", **options)
  end

  let(:no_tools) { { "PATH" => FileUtils.mkdir_p("#{dir}/no-tools").first, "make" => nil } }
  let(:musl) { "RbConfig::CONFIG['host_os'] = 'linux-musl'" }

  it "installs without probes on musl, which is untested" do
    checkout = unpack("#{dir}/checkout")
    expect(extconf(checkout, musl)).to eq("probescope: the C library is musl, and nobody has run probes on " \
                                          "it: installing without probes\n")
    expect(File.read("#{checkout}/ext/ruby/Makefile")).to include("all install")
  end

  # GIVEN a RubyGems that runs make only if there is a Makefile, WHEN there is no make, THEN
  # extconf.rb succeeds and leaves no Makefile. With an earlier RubyGems it fails with one line,
  # whatever else is missing.
  it "needs no make for a no-op from RubyGems 4.0 on" do
    checkout = unpack("#{dir}/checkout")
    later =
      "require 'rubygems/ext'; Gem::Ext::Builder.const_set(:NoMakefileError, Class.new(Gem::InstallError))"
    later = "" if newer_rubygems?
    ["", musl].each do |setup|
      expect(extconf(checkout, "#{later}; #{setup}", with: no_tools))
        .to end_with(": installing without probes\n")
      expect(File).not_to exist("#{checkout}/ext/ruby/Makefile")
    end
    expect(File.read("#{checkout}/lib/probescope/unavailable.txt")).to include("musl")
  end

  it "reports the missing make, without which RubyGems before 4.0 installs no extension" do
    if newer_rubygems?
      expect(install_with("sh", "env", "gcc")).to match(/\d gems? installed/)
      expect(ruby("-e", status)).to say(available: false).and include("apt install ruby-dev gcc make")
    else
      why = /make is missing\. RubyGems before 4\.0 .* itself runs it.*apt install ruby-dev gcc make/
      expect { install_with("sh", "env", "gcc") }.to raise_error(/probescope: #{why}/)
      expect { extconf(unpack("#{dir}/checkout"), musl, with: no_tools) }
        .to raise_error(/probescope: make is missing\. .*the C library is musl/)
    end
  end

  it "installs as a no-op with make=true without make and a compiler" do
    expect(install_with("sh", "env", make: "/bin/true")).to match(/\d gems? installed/)
    expect(ruby("-e", status)).to say(available: false).and include("compiler")
  end

  it "reports a checkout in Bundler's path: that was not compiled" do
    checkout = unpack("#{dir}/checkout")
    FileUtils.touch("#{checkout}/Rakefile")
    bundle "path: #{checkout.inspect}"
    expect(required_by_bundler).to say(available: false)
      .and match(
        %r{^probescope: no probes: .* Bundler compiles nothing by path: bin/setup run, in #{checkout}$}
      )
    FileUtils.mkdir_p("#{checkout}/bin")
    FileUtils.touch("#{checkout}/bin/setup")
    doctor = "ARGV.replace(%w[doctor]); begin; load '#{checkout}/exe/probescope'; rescue SystemExit; end"
    told = ruby("-S", "bundle", "exec", "ruby", "-e", doctor)
    expect(told).to match(%r{^NO  this Ruby .* was not built.* -> bin/setup run, in #{checkout}$})
  end
end
