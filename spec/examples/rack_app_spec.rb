# frozen_string_literal: true

# A web application as it runs in production: Sinatra on Puma, two workers, preloaded, bootsnap. What it answers, what the
# command says about it under load, and that Puma's restarts and our tracer do not disturb each other.
RSpec.describe "examples/rack_app" do
  before do
    next if Support::RackApp.gems?
    raise "the gems of examples/rack_app are missing: bin/setup specs installs them" if ENV["CI"]

    skip "the gems of examples/rack_app are missing: bin/setup specs installs them"
  end

  def rack_app(**env) = keep(Support::RackApp.new(env: env.transform_keys(&:to_s))).ready
  def load(app) = keep(app.load)

  # The line of a file of the application with this text in it.
  def place(file, text)
    ["examples/rack_app/#{file}", File.readlines(File.join(Support::RackApp::DIRECTORY, file)).index { |line| line.include?(text) } + 1]
  end

  # The hooks are in, and an interval has begun that counts.
  def await_counting(info)
    await("the hooks") { info.state("function__stats") == :on }
    before = info.header[:flushes]
    await("two flushes") { info.header[:flushes] >= before + 2 }
  end

  def at(row) = [row.fetch("file")[%r{examples/rack_app/.*}], row.fetch("line")]

  it "says what is in a manifest, prints labels with the same checksum when fixed, and refuses nonsense" do
    manifest = "(container C-7 (pallet P-1 (crate K-3 tea 12 rice 40)) (pallet P-2 salt 9))"
    answers = [{}, { FIXED: "parser,checksum" }].map do |env|
      app = rack_app(**env)
      found = JSON.parse(app.post("/manifests", manifest).body)
      expect(found).to eq("kind" => "container", "name" => "C-7", "kilograms" => 61, "items" => 3, "levels" => 3)
      refused = ["(container C-7", "tea 12", "(a b) c", "(a b tea many)", "("].map { |text| app.post("/manifests", text).code }
      expect(refused).to all(eq("422"))
      expect(app.post("/manifests", manifest, "application/x-www-form-urlencoded").code).to eq("415")
      JSON.parse(app.get("/labels/4711").body)
    end
    expect(answers.uniq.size).to eq(1)
    expect(answers.first["checksum"]).to eq(format("%08x", Zlib.crc32(answers.first["label"])))
  end

  describe "under load", :bpf do
    # Asked of Puma's master, for its workers: what docs/guide/web-app.md does.
    it "is told both mistakes, and no longer when they are fixed" do
      app = rack_app
      load = load(app)
      asked = %w[exceptions hot].map { |command| probescope_start(command, "-p", app.pid, "--workers", "-d", 5, "--json") }
      asked.each { |command| expect(command.wait).to be_success, command.to_s }
      found = asked.map { |command| JSON.parse(command.out) }
      found.each { |answer| expect(answer["pids"]).to match_array([app.pid, *app.workers]) }
      raised, hot = found.map { |answer| answer.fetch("rows") }
      expect(raised.first).to include("type" => "NoMethodError", "function" => "Manifest::Source#initialize")
      expect(at(raised.first)).to eq(place("lib/manifest.rb", "(from.string rescue from)"))
      expect(raised.first["mean_depth"]).to be > 60
      expect(hot.first(6).map { |row| row["function"] }).to include("Checksum#of", "Manifest::Source#initialize")
      expect(load.stop(:INT)).to be_success, load.to_s

      fixed = rack_app(FIXED: "parser,checksum")
      load = load(fixed)
      asked = %w[exceptions calls].map { |command| probescope_start(command, "-p", fixed.pid, "--workers", "-d", 2, "--json") }
      asked.each { |command| expect(command.wait).to be_success, command.to_s }
      raised, calls = asked.map { |command| JSON.parse(command.out).fetch("rows") }
      expect(raised.map { |row| row["type"] }).not_to include("NoMethodError")
      expect(calls.map { |row| row["function"] }).to include("FastChecksum#of", "Manifest#unit")
      expect(calls.map { |row| row["function"] }).not_to include("Checksum#of")
      expect(load.stop(:INT)).to be_success, load.to_s
    end

    # PRELOAD=0, for Puma takes no phased restart of a preloaded application.
    it "goes on serving through a phased restart while traced; its new workers are traced too, and rows of the old ones stay" do
      app = rack_app(PRELOAD: "0")
      load = load(app)
      old = app.workers
      one = probescope_start("calls", "-p", old.first, "-d", 600, "--json")
      all = probescope_start("calls", "-p", app.pid, "--workers", "--by-pid", "-d", 600, "--json", "--top", 0)
      old.each { |pid| await_counting(app.info(pid)) }
      app.signal(:USR1)
      await("two workers of the next phase in #{app}", within: 60) { app.workers(1).size == 2 }
      old.each { |pid| await("the end of worker #{pid}") { !File.exist?("/proc/#{pid}") } }
      app.workers(1).each { |pid| await_counting(app.info(pid)) }

      expect(one.wait).to be_success, one.to_s
      expect(one.err).to include("process #{old.first} ended while it was traced")
      expect(all.stop(:INT)).to be_success, all.to_s
      expect(all.err[/processes (.*) ended while they were traced/, 1].split(", ").map(&:to_i)).to match_array(old)
      rows = JSON.parse(all.out)["rows"].group_by { |row| row["pid"] }.transform_values { |of| of.map { |row| row["function"] } }
      expect(rows).to match((old + app.workers(1)).to_h { |pid| [pid, include("Manifest#unit", "Checksum#of")] })
      load.stop(:INT)
      # A client that asks again while a worker that ends closes its connection fails once; there are four.
      expect(JSON.parse(load.out)["failed"]).to be <= 8, "#{load}#{app}"
      expect(app.stop(:TERM).termsig).to eq(15), app.to_s # Puma stops its workers, then ends as by the signal
    end
  end

  # bootsnap hands Ruby compiled files out of its cache. Methods that came so before the tracer are found by the walk at the
  # attach; :script_compiled reports the files that come so while it listens.
  it "has its functions seen when bootsnap loads them from its cache, before the attach and after", :bpf do
    Dir.mktmpdir do |directory|
      %w[early late].each do |name|
        File.write(File.join(directory, "#{name}.rb"), <<~RUBY)
          class #{name.capitalize}
            def one = [2].each { |n| two(n) }
            def two(n) = n
          end
        RUBY
      end
      File.write(File.join(directory, "main.rb"), <<~RUBY)
        require "bundler/setup"
        require "bootsnap"
        Bootsnap.setup(cache_dir: "#{directory}/cache", development_mode: false, load_path_cache: false, compile_cache_iseq: true,
                       compile_cache_yaml: false)
        cached = Hash.new(0)
        Bootsnap.instrumentation = ->(event, path) { cached[event.to_s] += 1 if path.to_s.start_with?("#{directory}") }
        require "probescope/auto"
        require_relative "early"
        $stdout.sync = true
        puts "ready"
        status = Probescope.method(:status)
        nil until ARGV.empty? || status.call[:probes][:function__stats].first == :on
        flushes = status.call[:flushes]
        nil until ARGV.empty? || status.call[:flushes] >= flushes + 2
        require_relative "late"
        [Early, Late].each { |type| 1000.times { type.new.one } }
        puts "cached \#{cached["hit"]}"
      RUBY
      env = Support.plain_env.merge("BUNDLE_GEMFILE" => "#{Support::RackApp::DIRECTORY}/Gemfile")
      run = ->(*args) { keep(Support::Child.new(RbConfig.ruby, "#{directory}/main.rb", *args, env: env, chdir: directory)) }
      run.call.wait # fills the cache
      program = run.call("traced")
      program.await_line(/ready/)
      rows = probescope("calls", "-p", program.pid, "-d", 60, "--json").json["rows"]
      expect(program.out).to include("cached 2")
      counts = rows.to_h { |row| row.values_at("function", "calls") }
      expect(counts).to include(%w[Early#one Early#two Late#one Late#two].to_h { |name| [name, 1000] })
    end
  end
end
