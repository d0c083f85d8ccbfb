# frozen_string_literal: true

require "support/shared/freight_desk"

# A web application as in production: Sinatra on Puma, with two preloaded workers and bootsnap.
# Checks its answers, the commands' answers under load, and that Puma's restarts and a tracer do not
# disturb each other.
RSpec.describe "examples/rack_app" do
  before do
    next if Support::RackApp.gems?
    raise "the gems of examples/rack_app are missing: bin/setup specs installs them" if ENV["CI"]

    skip "the gems of examples/rack_app are missing: bin/setup specs installs them"
  end

  def rack_app(**env) = keep(Support::RackApp.new(env: env.transform_keys(&:to_s))).ready
  def load(app) = keep(app.load)

  # Waits until the hooks are in and an interval has begun.
  def await_counting(info)
    await("the hooks") { info.state("function__stats") == :on }
    before = info.header[:flushes]
    await("two flushes") { info.header[:flushes] >= before + 2 }
  end

  it_behaves_like "a freight desk",
                  labels: "/labels/(\\d+)",
                  app: Support::RackApp, hot: %w[Checksum#of Manifest::Source#initialize],
                  fixed: %w[FastChecksum#of Manifest#unit], gone: "Checksum#of",
                  parser: {type: "NoMethodError", function: "Manifest::Source#initialize", depth: 60,
                           file: "examples/rack_app/lib/manifest.rb", text: "(from.string rescue from)"}

  describe "under load", :bpf do
    # PRELOAD=0, because Puma does no phased restart of a preloaded application.
    it "serves through a phased restart under a trace; its new workers are traced too, and the old " \
       "ones' rows stay" do
      app = rack_app(PRELOAD: "0")
      counted = keep(app.load(requests: 20))
      expect(counted.wait).to be_success, counted.to_s
      expect(JSON.parse(counted.out)).to include("requests" => 20, "failed" => 0)
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
      expect(all.err[/processes (.*) ended while they were traced/, 1].split(", ").map(&:to_i))
        .to match_array(old)
      rows = JSON.parse(all.out)["rows"].group_by { |row| row["pid"] }.transform_values do |of|
        of.map { |row| row["function"] }
      end
      expect(rows)
        .to match((old + app.workers(1)).to_h { |pid| [pid, include("Manifest#unit", "Checksum#of")] })
      load.stop(:INT)
      # A client fails once if it sends a request while an ending worker closes the connection.
      # There are four clients.
      expect(JSON.parse(load.out)["failed"]).to be <= 8, "#{load}#{app}"
      expect(app.stop(:TERM).termsig).to eq(15), app.to_s # Puma stops its workers, then ends as by the signal
    end
  end

  # bootsnap gives Ruby compiled files from its cache. The walk at the attach finds methods that
  # were loaded in this way before. Under a tracer, :script_compiled reports such files.
  it "has hooks on functions that bootsnap loads from its cache, before and after the attach", :bpf do
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
        Bootsnap.setup(cache_dir: "#{directory}/cache", development_mode: false, load_path_cache: false,
                       compile_cache_iseq: true, compile_cache_yaml: false)
        cached = Hash.new(0)
        Bootsnap.instrumentation = lambda do |event, path|
          cached[event.to_s] += 1 if path.to_s.start_with?("#{directory}")
        end
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
      run = lambda do |*args|
        keep(Support::Child.new(RbConfig.ruby, "#{directory}/main.rb", *args, env: env, chdir: directory))
      end
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
