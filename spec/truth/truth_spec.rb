# frozen_string_literal: true

require "spec_helper"
require "time"
%w[language ledger checks results].each { |name| require_relative "support/#{name}" }

# Programs that count what they do, in temperaments (spec/truth/programs), under every command that makes sense for them: what a
# command reports is held against the program's own counters and clocks, in the interval that the command states.
#
#   rake truth    all of it; the results go into docs/truth.md
#
# In a plain run of RSpec it is one seed, short intervals, and the temperaments and commands of the gate (GATE, GATE_COMMANDS).
RSpec.describe "The truth", :bpf do
  seeds = Integer(ENV.fetch("TRUTH_SEEDS", "1"))
  seconds = Float(ENV.fetch("TRUTH_SECONDS", "1"))
  samples = Integer(ENV.fetch("TRUTH_SAMPLES", "0"))
  only = ENV.fetch("TRUTH_ONLY", Truth::GATE.join(",")).split(",")
  # With this seed and those after it, all commands run at once.
  crowded = Integer(ENV.fetch("TRUTH_CROWDED", "2"))
  tick = 10_000_000 # ns

  around { |example| Dir.mktmpdir { |folder| (@folder = folder) && Timeout.timeout(3600) { example.run } } }

  def start(language, temperament, seed)
    target(language.path("temperament"), temperament, seed.to_s, @folder, options: language.options,
                                                                          env: {"PROBESCOPE_FUNCTIONS" => "#{Truth::PROGRAMS}/work.*"}).ready
  end

  # What a command answers: its JSON.
  def ask(program, command, temperament, seconds)
    return latency(program, temperament == "slow_calls" ? "nap" : "step", seconds) if command == "latency"

    options = temperament == "forks" ? %w[--workers --by-pid] : []
    options += ["--function", @language.function("nap")] if command == "flow"
    seconds += 2 if command == "stat" # a line a second
    from = now_ns
    lines = know { probescope(command, "-p", program.pid, "-d", seconds, "--json", *options, within: seconds + 120) }
    return {"pid" => program.pid, "from" => from, "to" => now_ns, "seconds" => seconds, "lines" => lines} if command == "flow"

    command == "stat" ? lines : lines.first
  end

  # Where a machine is so busy that no interval ends in the time that was asked for, a command says that it knows nothing: no answer, and
  # no wrong one.
  def know
    result = nil
    3.times do
      result = yield
      break if result.success? || !result.err.include?("nothing is known")
    end
    expect(result).to be_success, result.err
    result.out.lines.map { |line| JSON.parse(line) }
  end

  def now_ns = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)

  # A line of bpftrace, as docs/guide has it. It says of each 10 ms what there was, and the interval is some of them.
  define_method(:latency) do |program, function, seconds|
    text = "usdt:*:latency:\"#{@language.probe(function)}\" " \
           "{ if (@n == 0) { printf(\"heard\\n\"); } @n += 1; @calls[nsecs / #{tick}] = count(); @ns[nsecs / #{tick}] = sum(arg0); }"
    listening = keep(Support::Tracer.new(text, pid: program.pid, options: %w[-B line], env: {"BPFTRACE_MAP_KEYS_MAX" => "65536"}))
    listening.await_line(/heard/, within: 60)
    from = now_ns / tick + 10
    to = from + (seconds * 1e9 / tick).ceil
    sleep(0.05) until now_ns > (to + 10) * tick
    out = listening.finish
    calls, ns = %w[calls ns].map do |map|
      out.scan(/^@#{map}\[(\d+)\]: (\d+)/).sum { |tick, value| (from...to).cover?(tick.to_i) ? value.to_i : 0 }
    end
    {"pid" => program.pid, "from" => from * tick, "to" => to * tick, "function" => function, "count" => calls, "ns" => ns, "lost" => {}}
  end

  def figures(command, answer)
    Truth::CHECKS.fetch(command).processes(answer).flat_map do |pid, interval, rows|
      path = File.join(@folder, "#{pid}.json")
      next [] unless File.exist?(path) && (ledger = Truth::Ledger.new(path)).names("calls:").any?

      expect(ledger.reaches?(interval.last)).to be(true), "the program ended before the interval did"
      Truth::CHECKS.fetch(command).new(@language, answer, interval, rows, ledger).figures
    end
  end

  # The findings of one program: each command by itself, or all at once. Those that take samples are beside each other: they look at
  # the same ones.
  def findings(temperament, commands, seed, at_once, length)
    program = start(@language, temperament, seed)
    commands = commands.reject { |command| program.info.state(Truth::PROBES.fetch(command)) == :unsupported }
    groups = at_once ? [commands] : commands.map { |command| [command] }
    answers = groups.flat_map do |group|
      group.map { |command| Thread.new { [command, ask(program, command, temperament, length)] } }.map(&:value)
    end
    program.stop
    answers.map do |command, answer|
      check = Truth::CHECKS.fetch(command)
      found = Truth::Finding.new(language: @language.name, temperament: temperament, command: command, seed: seed,
                                 figures: figures(command, answer), samples: check.samples(answer), lost: check.lost(answer))
      expect(found.figures).to be_any, found.name
      found
    end
  ensure
    stop_processes
  end

  # Fails for those that are outside and not listed; says what is listed.
  def judge(found)
    found.each { |finding| Truth::Results.add(finding) }
    listed, others = found.partition { |finding| Truth.known(finding) }
    listed.each do |finding|
      outside = finding.wrong.max_by(&:error)
      RSpec.configuration.reporter.message("#{finding.name}, listed in spec/truth/known.json: #{outside || "inside"}")
    end
    wrong = others.flat_map do |finding|
      finding.wrong.map do |figure|
        "#{finding.name}, seed #{finding.seed}: #{figure}, lost: #{finding.lost}"
      end
    end
    expect(wrong).to be_empty, wrong.join("\n")
  end

  Truth::LANGUAGES.each do |language|
    context "of #{language.name}", *(:python if language.python?) do
      before { @language = language }

      language.temperaments.each do |temperament, commands|
        commands &= Truth::GATE_COMMANDS unless ENV.key?("TRUTH_ONLY")
        counted, sampled = commands.partition { |command| !Truth::SAMPLED.include?(command) }
        next unless only.include?(temperament) || only == %w[all]

        it "in #{temperament.tr("_", " ")}: #{counted.join(", ")}" do
          judge((1..seeds).flat_map { |seed| findings(temperament, counted, seed, seed >= crowded, seconds) })
        end

        next if sampled.empty? || samples.zero?

        it "in #{temperament.tr("_", " ")}: #{sampled.join(", ")}" do
          found, seed = [], 0
          until seed >= seeds && found.map(&:samples).sum >= samples * sampled.size
            found += findings(temperament, sampled, seed += 1, true, (samples / 99.0 / seeds).ceil)
          end
          judge(found.group_by(&:command).values.map { |same| Truth::Samples.together(same) })
        end
      end
    end
  end
end
