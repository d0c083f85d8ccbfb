# frozen_string_literal: true

require "spec_helper"
require "time"
%w[language ledger lock_waits checks results].each { |name| require_relative "support/#{name}" }

# Programs that count what they do, in several temperaments (spec/truth/programs), run under every
# command that suits them. The command's report is compared with the program's own counters and
# clocks, in the interval that the command states.
#
#   rake truth    runs everything, and writes the results to docs/truth.md
#
# A plain run of RSpec has one seed, short intervals, and the gate's temperaments and commands
# (GATE). TRUTH_LANGUAGES and TRUTH_ONLY select languages and temperaments, separated
# by commas; the default is all.
RSpec.describe "The truth", :bpf, within: 7200 do
  seeds = Integer(ENV.fetch("TRUTH_SEEDS", "1"))
  seconds = Float(ENV.fetch("TRUTH_SECONDS", "1"))
  samples = Integer(ENV.fetch("TRUTH_SAMPLES", "0"))
  only = ENV.fetch("TRUTH_ONLY", Truth::GATE.keys.join(",")).split(",")
  languages = ENV.fetch("TRUTH_LANGUAGES", "all").split(",")
  tick = 10_000_000 # ns

  around { |example| Dir.mktmpdir { |folder| (@folder = folder) && example.run } }

  # group: whether other programs run at the same time.
  def start(language, temperament, seed, group)
    env = language.env.merge("PROBESCOPE_FUNCTIONS" => "#{Truth::PROGRAMS}/work.*",
                             "TRUTH_GROUP" => ("1" if group))
    target(language.path("temperament"), temperament, seed.to_s, @folder,
           options: language.options, env: env).ready
  end

  # Returns a command's answer about these programs: its JSON.
  def ask(programs, command, temperament, seconds)
    case command
    when "latency" then latency(programs, temperament == "slow_calls" ? "nap" : "step", seconds)
    when "flow" then programs.map { |one| Thread.new { flow(one, seconds) } }.map(&:value)
    when "stat" then tell(programs, command, temperament, seconds + 2) # a line a second
    when "gvl"
      waits = programs.to_h { |one| [one.pid, Truth::LockWaits.new(one.pid)] }
      tell(programs, command, temperament, seconds).first.merge("waits" => waits)
    else tell(programs, command, temperament, seconds).first
    end
  ensure
    waits&.each_value(&:finish)
  end

  def tell(programs, command, temperament, seconds)
    options = [*("--by-pid" if programs.size > 1), *(%w[--workers --by-pid] if temperament == "forks")].uniq
    options += %w[--by self] if Truth::SAMPLED.include?(command)
    words = Truth::OnCheck::EVENT if command == "on"
    know do |times|
      probescope(command, *words, *programs.flat_map { |one| ["-p", one.pid] }, "-d", seconds * times,
                 "--json", *options, within: seconds + 240)
    end
  end

  def flow(program, seconds)
    nap = @language.function("nap")
    # flow reports whole seconds, and the last second may be incomplete.
    lines = know do |times|
      probescope("flow", "-p", program.pid, "-d", (seconds * times) + 1, "--json", "--function", nap,
                 within: seconds + 240)
    end
    {"pid" => program.pid, "lines" => lines}
  end

  no_answer = /nothing is known|did not attach within|was not called in that time/
  more = /some figures may cover a second more than others/

  # On a very busy machine no interval may end in the requested time, or bpftrace may start too
  # late. The command then reports that and has no answer. It runs again, for longer. It also runs
  # again if it warns that its figures may cover more than the interval. On Linux 6.18, kernel
  # threads that uprobes wait for may starve for a minute beside thread pools, for any tracer
  # (decision 215). So there are several attempts, but none so long that maps fill up.
  define_method(:know) do |&ask|
    result = nil
    [1, 2, 4, 4, 4, 4].each do |times|
      result = ask.call(times)
      break unless result.err.match?(result.success? ? more : no_answer)
    end
    expect(result).to be_success, result.err
    result.out.lines.map { |line| JSON.parse(line) }
  end

  def now_ns = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)

  # A bpftrace one-liner as in docs/how-to/probes-of-your-own.md, on the file that these programs
  # share. It counts in slots of 10 ms, and the interval consists of some of these slots.
  define_method(:latency) do |programs, function, seconds|
    text = "usdt:#{latency_file(programs.first, function)}:latency:\"#{@language.probe(function)}\" " \
           "{ if (@n[pid] == 0) { printf(\"heard %d\\n\", pid); } @n[pid] += 1; " \
           "@calls[pid, nsecs / #{tick}] = count(); @ns[pid, nsecs / #{tick}] = sum(arg0); }"
    listening = keep(Support::Tracer.new(text,
                                         options: %w[-B line], env: {"BPFTRACE_MAP_KEYS_MAX" => "65536"}))
    programs.each { |one| listening.await_line(/heard #{one.pid}/, within: 240) }
    from = now_ns / tick + 10
    to = from + (seconds * 1e9 / tick).ceil
    sleep(0.05) until now_ns > (to + 10) * tick
    out = listening.finish(within: 240)
    programs.map do |one|
      calls, ns = %w[calls ns].map do |map|
        out.scan(/^@#{map}\[#{one.pid}, (\d+)\]: (\d+)/).sum do |tick, value|
          (from...to).cover?(tick.to_i) ? value.to_i : 0
        end
      end
      {"pid" => one.pid, "from" => from * tick, "to" => to * tick, "function" => function, "count" => calls,
       "ns" => ns}
    end
  end

  # Returns the file that the process has mapped for the function's probe.
  def latency_file(program, function)
    paths = File.readlines("/proc/#{program.pid}/maps")
                .filter_map { |line| line[%r{/\S*/latency-\h+\.so}] }.uniq
    paths.find { |path| File.binread(path).include?("#{@language.probe(function)}\0") }
  end

  # Returns the ledger of each program that wrote one: process id => ledger.
  def ledgers
    Dir[File.join(@folder, "*.json")].to_h do |path|
      [File.basename(path, ".json").to_i, Truth::Ledger.new(path)]
    end
  end

  # Returns the findings of a program for each seed. All commands but stat trace at once. group:
  # whether there are many programs. On a very busy machine the programs may have done nothing, and
  # a command has no figure to compare. That command runs again on new programs, for longer.
  def findings(temperament, commands, seeds, length, group: seeds.size > 1)
    found, served = findings_once(temperament, commands, seeds, length, group: group)
    silent = nothing_of(found, served)
    return found if silent.empty?

    again, = findings_once(temperament, silent, seeds, length * 4, group: group)
    expect(nothing_of(again, silent)).to be_empty, "#{silent.join(", ")} have nothing to compare"
    found.reject { |one| silent.include?(one.command) } + again
  end

  # Returns the commands without a figure.
  def nothing_of(found, commands)
    commands - found.select { |one| one.figures.any? }.map(&:command)
  end

  # Also returns the commands whose probe these programs serve.
  def findings_once(temperament, commands, seeds, length, group:)
    programs = seeds.map { |seed| start(@language, temperament, seed, group) }
    commands = commands.reject do |command|
      programs.first.info.state(@language.probes.fetch(command)) == :unsupported
    end
    # The VM also counts the objects that the library makes while other commands' hooks come in and
    # go out. So stat runs alone, and first.
    answers = commands.partition { |command| command == "stat" }.flat_map do |some|
      asking = some.map { |command| Thread.new { [command, ask(programs, command, temperament, length)] } }
      asking.map(&:value)
    end
    programs.each(&:stop)
    [answers.flat_map { |command, answer| examine(temperament, command, answer, seeds, length) }, commands]
  ensure
    stop_processes
    FileUtils.rm_f(Dir[File.join(@folder, "*")])
  end

  # Returns a finding for each process. The first has the losses that the command reported.
  def examine(temperament, command, answer, seeds, length)
    check = Truth::CHECKS.fetch(command)
    working = ledgers.select { |_, ledger| ledger.names("calls:").any? }
    checks = check.of(@language, answer, working)
    lost = check.lost(answer)
    told = checks.size + (lost || {}).fetch("processes left out", 0)
    expect(told)
      .to be >= working.size, "#{command} says nothing of #{working.size - told} of #{working.size} processes"
    checks.each_with_index.map do |one, index|
      Truth::Finding.new(language: @language.name, temperament: temperament, command: command,
                         seed: seeds.minmax.uniq.join(" to "), seconds: length, figures: one.figures,
                         samples: one.samples, lost: (lost if index.zero?))
    end
  end

  # Fails for figures outside their Range.
  def judge(found)
    found.each { |finding| Truth::Results.add(finding) }
    wrong = found.flat_map do |finding|
      seed = finding.seed ? "seed #{finding.seed}" : "all seeds"
      finding.wrong.map { |figure| "#{finding.name}, #{seed}: #{figure}, lost: #{finding.lost}" }
    end
    expect(wrong).to be_empty, wrong.join("\n")
  end

  # Collects samples of all seeds until there are enough. The first programs show how long the
  # others must run.
  define_method(:sampled_findings) do |temperament, commands|
    found, length = [], 4
    (1..).each_slice(5) do |some|
      break if some.first > seeds && Truth::Samples.least(found, commands) >= samples

      had = Truth::Samples.least(found, commands)
      found += findings(temperament, commands, some, length, group: false)
      each_second = [(Truth::Samples.least(found, commands) - had) / length.to_f, 1].max
      groups_left = [(seeds - some.last).fdiv(some.size), 1].max
      length =
        ((samples - Truth::Samples.least(found, commands)) / groups_left / each_second).ceil.clamp(1, 60)
    end
    found.group_by(&:command).values.map { |same| Truth::Samples.together(same) }
  end

  chosen = Truth::LANGUAGES.select { |language| languages == %w[all] || languages.include?(language.name) }
  chosen.each do |language|
    context "of #{language.name}", *(:python if language.python?) do
      before { @language = language }

      language.temperaments.each do |temperament, commands|
        commands &= Truth::GATE.fetch(temperament, []) unless ENV.key?("TRUTH_ONLY")
        counted, sampled = commands.partition { |command| !Truth::SAMPLED.include?(command) }
        next unless only.include?(temperament) || only == %w[all]

        it "in #{temperament.tr("_", " ")}: #{counted.join(", ")}" do
          found = findings(temperament, counted, [1], seconds)
          found += findings(temperament, counted, 2..seeds, seconds) if seeds > 1
          judge(found + found.group_by(&:command).values.filter_map { |same| Truth::Counts.together(same) })
        end

        next if sampled.empty? || samples.zero?

        it "in #{temperament.tr("_", " ")}: #{sampled.join(", ")}" do
          judge(sampled_findings(temperament, sampled))
        end
      end
    end
  end
end
