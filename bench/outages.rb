# frozen_string_literal: true

# Measures the effect on a web application when the bridge's backend fails. examples/rack_app runs
# under its load loop, with `probescope otel` attached to both workers. The backend works, and fails
# in each way in which backends do.
#
#   bundle exec ruby bench/outages.rb          # as root, some seven minutes
#   OUTAGE=10 bundle exec ruby bench/outages.rb
#
# One bridge and one application run through all of it. The backend works, fails for OUTAGE seconds,
# works again, and fails in another way. The load loop runs all the time with one client, in short
# runs of the same number of requests, and measures the times itself. It also runs on a second
# application without probescope, in turn with the first, because other work on the machine affects
# both. Each run counts as its ratio to the second application's. A failure is compared with the
# runs before and after it. The backend answers without reading the requests, because it works on
# the same CPUs.
%w[paths await elf info child python target bpf otlp_server rack_app].each do |name|
  require_relative "../spec/support/#{name}"
end
require "json"
require_relative "statistics"

class Outages
  include Support::Await
  include Statistics

  OUTAGE = Float(ENV.fetch("OUTAGE", "30"))
  REQUESTS = 100
  RECOVERY = 120 # seconds, at most
  # Result of one run of the load loop, in ms: the time within which half and 99 % of the requests
  # were answered, and the workers' CPU for one request.
  Run = Struct.new(:half, :most, :cpu)
  # A run of the application with the bridge, and its ratios to that of the one without.
  Round = Struct.new(:run, :ratios)

  # Accepts everything.
  class Backend < Support::OtlpServer
    private

    def keep(socket, *) = socket.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
  end

  def run
    @backend = Backend.new
    @app, @twin = [{}, {"WITHOUT_PROBESCOPE" => "1"}].map { |env| Support::RackApp.new(env: env).ready }
    attach
    2.times { round }
    puts "| while the backend | median time | ratio | 99th percentile | ratio " \
         "| CPU time of a request | ratio |", "|---|---|---|---|---|---|---|"
    works = rounds
    Support::OtlpServer.failures(retry_after: 5).each do |name, failure|
      fails = failing(failure)
      before, works = works, rounds
      puts row(name, fails, before + works)
    end
    @bridge.stop(within: 10)
    puts "", @bridge.err.lines.grep(/received/).last
  ensure
    [@bridge, @app, @twin, @backend].compact.each(&:kill_all)
  end

  private

  def attach
    @bridge = Support::Child.new(RbConfig.ruby, Support::EXE, "otel", "-p", @app.pid.to_s, "--workers",
                                 "--slow", "1ms", "--endpoint", @backend.endpoint, env: ENV.to_h)
    await("hooks", within: 60) do
      @app.get("/") # hooks are switched when a worker wakes up
      @app.workers.all? { |pid| @app.info(pid).state("function__slow1ms") == :on }
    end
  end

  # Returns the runs during the failure, after the bridge has noticed it.
  def failing(failure)
    @said = @bridge.err.size
    @backend.behaviour = failure
    round until said?(/traces: .*they wait/)
    found = rounds
    @backend.behaviour = :take
    limit = monotonic + RECOVERY
    round until said?(/traces: .*takes them again/) || monotonic > limit
    found
  end

  def said?(pattern) = @bridge.err[@said..].match?(pattern)

  def rounds
    limit = monotonic + OUTAGE
    found = []
    found << round while monotonic < limit
    found
  end

  def round
    run, other = [load(@app), load(@twin)]
    Round.new(run, Run.new(*run.zip(other).map { |one, two| one / two }))
  end

  def load(app)
    before = app.workers_cpu
    child = app.load(requests: REQUESTS, threads: 1)
    raise "the load failed: #{child}" unless child.wait(within: 60).success?

    result = JSON.parse(child.out)
    Run.new(*result["latency_ms"].values_at("p50", "p99"),
            (app.workers_cpu - before) / result["requests"] * 1000)
  end

  def row(name, fails, works)
    cells = Run.members.flat_map do |value|
      [format("%.2f ms", median(fails.map { |one| one.run[value] })),
       ratio(*[fails, works].map { |all| all.map { |one| one.ratios[value] } })]
    end
    "| #{name} | #{cells.join(" | ")} |"
  end

  # Ratio of the means of logarithms, with its standard error.
  def ratio(fails, works)
    means, errors = [fails, works].map { |values| mean(values.map { |value| Math.log(value) }) }.transpose
    center = Math.exp(means.first - means.last)
    format("%<center>.3f ± %<error>.3f", center: center, error: center * Math.hypot(*errors))
  end
end

$stdout.sync = true
load = File.read("/proc/loadavg").split.first
puts "Measured by `bench/outages.rb` on #{`uname -srm`.strip}, Ruby #{RUBY_VERSION}, " \
     "OUTAGE=#{Outages::OUTAGE.round}, load #{load} before the run", ""
Outages.new.run if $PROGRAM_NAME == __FILE__
