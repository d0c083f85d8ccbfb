# frozen_string_literal: true

# What probescope costs a web application under load: examples/rack_app without it, with it, and with a command attached.
# Rewrites the section "A web application" of docs/performance.md.
#
#   bundle exec rake bench:web          # about four minutes, as root
#
# All kinds run at the same time, the tracers attached, and the load goes from one to the next in short turns, so that what
# else the machine does meets all of them: each turn is held against the turn of its reference in the same round. Processes
# of one kind differ a little from start to start, so all are started several times. Requests a second are what a user sees;
# CPU of the workers for one request says the same with less noise.
require "json"
%w[paths await elf info child target bpf tracer rack_app].each { |name| require_relative "../spec/support/#{name}" }

class Web
  include Support::Await

  OUTPUT = File.join(Support::ROOT, "docs/performance.md")
  HEADING = "## A web application"
  STARTS = Integer(ENV.fetch("STARTS", "5"))
  ROUNDS = Integer(ENV.fetch("ROUNDS", "12"))
  SECONDS = Float(ENV.fetch("SECONDS", "0.7"))

  # env: of the application; program: the bpftrace program on each of its workers, and what it listens to; against: what it is
  # compared with.
  Kind = Struct.new(:label, :env, :program, :probe, :against, keyword_init: true)
  WITHOUT = Kind.new(label: "without probescope", env: {"WITHOUT_PROBESCOPE" => "1"})
  LOADED = Kind.new(label: "loaded, nobody listens", env: {}, against: WITHOUT)
  KINDS = [
    WITHOUT, LOADED,
    Kind.new(label: "`hot` attached to both workers", env: {}, program: "hot.bt", probe: "sample__stats", against: LOADED),
    Kind.new(label: "`exceptions` attached to both workers", env: {}, program: "exceptions.bt", probe: "exception__stats",
             against: LOADED)
  ].freeze

  # What one turn brought: requests a second, and CPU seconds of the workers for a request.
  Turn = Struct.new(:per_second, :cpu)

  def write
    section = measure
    text = File.read(OUTPUT)
    text = text[/.*?(?=^#{HEADING}$)/m] || "#{text.chomp}\n\n"
    File.write(OUTPUT, text + section)
    puts section
  end

  private

  def measure
    report(Array.new(STARTS) { |start| warn("bench: web application, start #{start + 1} of #{STARTS} ...") || rounds }.flatten(1))
  end

  # One start of all kinds: [{kind => Turn}, ...].
  def rounds
    apps = KINDS.to_h { |kind| [kind, Support::RackApp.new(env: kind.env)] }
    apps.each_value { |app| run(app.ready) } # warm-up
    tracers = apps.flat_map { |kind, app| attach(kind, app) }
    Array.new(ROUNDS) do |round|
      KINDS.rotate(round).to_h { |kind| [kind, run(apps[kind])] }
    end
  ensure
    tracers&.each(&:kill_all)
    apps&.each_value(&:kill_all)
  end

  def attach(kind, app)
    return [] unless kind.program

    tracers = app.workers.map { |pid| Support::Tracer.new(File.join(Support::ROOT, "providers", kind.program), pid: pid) }
    await("#{kind.probe} on", within: 60) do
      app.get("/") # hooks are switched when a worker wakes up
      app.workers.all? { |pid| app.info(pid).state(kind.probe) == :on }
    end
    tracers
  end

  def run(app)
    before = cpu(app)
    load = app.load(seconds: SECONDS)
    raise "the load failed: #{load}" unless load.wait(within: 120).success?

    result = JSON.parse(load.out)
    Turn.new(result["per_second"], (cpu(app) - before) / result["requests"])
  end

  # CPU seconds of the workers so far, all of their threads (clock ticks are too coarse for one turn).
  def cpu(app)
    app.workers.sum { |pid| Dir["/proc/#{pid}/task/*/schedstat"].sum { |path| File.read(path).split.first.to_i } } / 1e9
  end

  def report(rounds)
    lines = KINDS.map do |kind|
      turns = rounds.map { |round| round[kind] }
      format("| %s | %.0f | %s | %.3f ms | %s |", kind.label, median(turns.map(&:per_second)), ratio(rounds, kind, :per_second),
             median(turns.map(&:cpu)) * 1000, ratio(rounds, kind, :cpu))
    end
    <<~MARKDOWN
      #{HEADING}

      `examples/rack_app` (Sinatra on Puma, two workers; a manifest makes some 450 exceptions, 100 frames deep) under its load loop
      on the same machine: medians of #{STARTS * ROUNDS} turns of #{SECONDS} s each. All run at the same time and are loaded in turns; a ratio is the
      median of the ratios within a round: the second row against the first, the others against the second. CPU is that of the
      workers. Written by `rake bench:web`.

      | | requests/s | ratio | CPU a request | ratio |
      |---|---|---|---|---|
      #{lines.join("\n")}
    MARKDOWN
  end

  def ratio(rounds, kind, value)
    return "" unless kind.against

    format("%.3f", median(rounds.map { |round| round[kind][value] / round[kind.against][value] }))
  end

  def median(values)
    sorted = values.sort
    (sorted[(sorted.size - 1) / 2] + sorted[sorted.size / 2]) / 2.0
  end
end

Web.new.write if $PROGRAM_NAME == __FILE__
