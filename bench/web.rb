# frozen_string_literal: true

# Measures what probescope costs a web application under load: examples/rack_app without it, with
# it, and with a command attached. Also measures what the fixes of its two mistakes save. Rewrites
# its section of docs/performance.md.
#
#   bundle exec rake bench:web          # some three minutes on an idle machine, as root
#
# The benchmark also works on a machine with other work. All applications run at the same time and
# are loaded in short turns of the same number of requests. An application and its reference take
# turns, so other work affects both. The median of a phase's ratios is one figure. Processes of one
# kind differ a little from start to start. So a tracer moves from one application to its twin for
# the next phase, which cancels the difference, and all are started several times. A row is the mean
# of its phases with the standard error of that mean. Requests a second are what a user sees; the
# workers' CPU for one request shows the same with less noise.
require "fileutils"
require "json"
%w[paths await elf info child target bpf tracer rack_app].each do |name|
  require_relative "../spec/support/#{name}"
end
require_relative "performance_page"
require_relative "web_turns"

class Web
  include Support::Await
  include WebTurns

  STARTS = Integer(ENV.fetch("STARTS", "4"))
  ROUNDS = Integer(ENV.fetch("ROUNDS", "8"))

  # The applications to start. `loaded` and `twin` are equal, so that one is traced while the other
  # is not.
  APPS = {
    without: {"WITHOUT_PROBESCOPE" => "1"}, loaded: {}, twin: {},
    parser: {"FIXED" => "parser"}, both: {"FIXED" => "parser,checksum"}
  }.freeze
  # A row's label, the program on each worker, and the probe that it traces.
  Traced = Struct.new(:label, :program, :probe)
  TRACED = [
    Traced.new("`hot` attached to both workers", "hot.bt", "sample__stats"),
    Traced.new("`exceptions` attached to both workers", "exceptions.bt", "exception__stats")
  ].freeze
  IDLE = "loaded, no tracer"
  FIXES = {parser: "the parser fixed, no tracer",
           both: "parser and checksum fixed, no tracer"}.freeze

  # One phase of a row: the medians of its turns, and of their ratios to the reference's turns in
  # the same round.
  Phase = Struct.new(:turn, :ratios)

  def write
    PerformancePage.write("bench/web.rb", measure)
  end

  private

  # Every turn of every phase is kept beside the page for a closer look.
  RAW = File.join(Support::ROOT, "tmp/bench-web.json")

  def measure
    @raw = []
    @phases = Hash.new { |phases, label| phases[label] = [] }
    @reference = []
    STARTS.times do |start|
      warn "bench: web application, start #{start + 1} of #{STARTS} ..."
      phases
    end
    FileUtils.mkdir_p(File.dirname(RAW))
    File.write(RAW, JSON.generate(@raw))
    report
  end

  # Starts all applications once, and measures the phases.
  def phases
    apps = APPS.transform_values { |env| Support::RackApp.new(env: env) }
    apps.each_value { |app| 2.times { turn(app.ready) } } # warm-up
    untraced(rounds(apps, ROUNDS))
    TRACED.each do |row|
      [%i[loaded twin], %i[twin loaded]].each do |traced, other|
        with_tracers(row, apps[traced]) do
          compare(row.label, rounds(apps.slice(traced, other), ROUNDS), traced, other)
        end
      end
    end
  ensure
    apps&.each_value(&:kill_all)
  end

  def untraced(rounds)
    %i[loaded twin].each { |app| compare(IDLE, rounds, app, :without) }
    FIXES.each { |app, label| compare(label, rounds, app, :loaded) }
    @reference.concat(rounds.map { |round| round[:without] })
  end

  def compare(label, rounds, app, reference)
    @raw << {label: label, app: app, reference: reference,
             turns: rounds.map { |round| round.transform_values(&:to_a) }}
    ratios = Turn.members.map do |value|
      median(rounds.map { |round| round[app][value] / round[reference][value] })
    end
    @phases[label] << Phase.new(middle(rounds.map { |round| round[app] }), Turn.new(*ratios))
  end

  def with_tracers(row, app)
    program = File.join(Support::ROOT, "providers", row.program)
    tracers = app.workers.map { |pid| Support::Tracer.new(program, pid: pid) }
    await("#{row.probe} on", within: 60) { listening?(app, row.probe, :on) }
    yield
    tracers.each { |tracer| tracer.stop(:INT) }
    await("#{row.probe} off", within: 60) { listening?(app, row.probe, :off) }
  ensure
    tracers&.each(&:kill_all)
  end

  def listening?(app, probe, state)
    app.get("/") # hooks are switched when a worker wakes up
    app.workers.all? { |pid| app.info(pid).state(probe) == state }
  end

  def report
    without = middle(@reference)
    lines = [format("| without probescope | %.0f | | %.3f ms | |", without.per_second, without.cpu * 1000)]
    lines += [IDLE, *TRACED.map(&:label), *FIXES.values].map do |label|
      phases = @phases[label]
      turn = middle(phases.map(&:turn))
      format("| %s | %.0f | %s | %.3f ms | %s |", label,
             turn.per_second, geometric_mean(phases.map { |phase| phase.ratios.per_second }),
             turn.cpu * 1000, geometric_mean(phases.map { |phase| phase.ratios.cpu }))
    end
    <<~MARKDOWN
      <!-- bench/web.rb -->
      ## A web application

      `examples/rack_app` is a Sinatra application on Puma with two workers; its manifests raise
      some 450 exceptions each, 100 frames deep. Its load loop runs on the same two cores, in turns
      of #{REQUESTS} requests (Ruby #{RUBY_VERSION}). A ratio compares a row with its reference,
      which is the first row for the second and the second row for all others. In each round an
      application and its reference have one turn each. The ratio of a phase is the median of the
      ratios of its #{ROUNDS} rounds. A ratio in the table is the geometric mean of #{STARTS * 2}
      phases (#{STARTS} for the fixes), with its standard error. CPU time is that of the workers.
      Written by `rake bench:web`.

      | | requests/s | ratio | CPU time of a request | ratio |
      |---|---|---|---|---|
      #{lines.join("\n")}
      <!-- end of bench/web.rb -->
    MARKDOWN
  end
end

Web.new.write if $PROGRAM_NAME == __FILE__
