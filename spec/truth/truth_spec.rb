# frozen_string_literal: true

require "spec_helper"
require "time"
%w[language ledger checks results].each { |name| require_relative "support/#{name}" }

# Programs that count what they do, in temperaments (spec/truth/programs), under every command that makes sense for them: what a
# command reports is held against the program's own counters and clocks, in the interval that the command states.
#
#   rake truth    all of it; the results go into docs/truth.md
#
# In a plain run of RSpec it is one seed, short intervals and the temperaments of GATE, without `hot`, whose samples take half a
# minute of CPU.
RSpec.describe "The truth", :bpf do
  seeds = Integer(ENV.fetch("TRUTH_SEEDS", "1"))
  seconds = Float(ENV.fetch("TRUTH_SECONDS", "1"))
  samples = Integer(ENV.fetch("TRUTH_SAMPLES", "0"))
  only = ENV.fetch("TRUTH_ONLY", Truth::GATE.join(",")).split(",")

  around { |example| Dir.mktmpdir { |folder| (@folder = folder) && example.run } }

  def start(language, temperament, seed)
    program = target(language.path("temperament"), temperament, seed.to_s, @folder, options: [],
                                                                                    env: {"PROBESCOPE_FUNCTIONS" => "#{Truth::PROGRAMS}/**"})
    program.ready
  end

  # Runs a command until its end and returns its JSON.
  def ask(program, command, temperament, seconds)
    workers = temperament == "forks" ? %w[--workers --by-pid] : []
    result = probescope(command, "-p", program.pid, "-d", seconds, "--json", *workers, within: seconds + 90)
    expect(result).to be_success, "#{command}: #{result.err}"
    result.json
  end

  # [[pid, [begin, end], rows]] of those that are counted; times in ns of CLOCK_MONOTONIC.
  def processes(answer)
    answer.fetch("processes").filter_map do |process|
      next if process["left_out"]

      pid = process.fetch("pid")
      interval = process.values_at("begin", "end").map { |time| monotonic_ns(time) }
      [pid, interval, answer["rows"].select { |row| row.fetch("pid", pid) == pid }]
    end
  end

  def monotonic_ns(iso)
    now, wall = %i[CLOCK_MONOTONIC CLOCK_REALTIME].map { |clock| Process.clock_gettime(Process.const_get(clock), :nanosecond) }
    time = Time.iso8601(iso)
    time.to_i * 1_000_000_000 + time.nsec - (wall - now)
  end

  def figures(language, command, answer)
    processes(answer).flat_map do |pid, interval, rows|
      path = File.join(@folder, "#{pid}.json")
      next [] unless File.exist?(path) && (ledger = Truth::Ledger.new(path)).names("calls:").any?

      expect(ledger.reaches?(interval.last)).to be(true), "the program ended before the interval did"
      Truth::CHECKS.fetch(command).new(language, answer, interval, rows, ledger).figures
    end
  end

  Truth::LANGUAGES.each do |language|
    context "of #{language.name}", *(:python if language.name == "Python") do
      language.temperaments.each do |temperament, commands|
        commands -= %w[hot] if samples.zero?
        next unless only.include?(temperament) || only == %w[all]

        it "in #{temperament.tr("_", " ")}: #{commands.join(", ")}" do
          (1..seeds).each do |seed|
            program = start(language, temperament, seed)
            served = commands.reject { |command| program.info.state(Truth::PROBES.fetch(command)) == :unsupported }
            answers = served.to_h do |command|
              [command, ask(program, command, temperament, command == "hot" ? samples / 99.0 : seconds)]
            end
            program.stop
            found = answers.to_h { |command, answer| [command, figures(language, command, answer)] }
            found.each { |command, all| Truth::Results.add(language, temperament, command, seed, all, answers[command]["lost"]) }
            expect(found.values).to all(be_any)
            wrong = found.flat_map { |command, all| all.reject(&:right?).map { |figure| "#{command}, seed #{seed}: #{figure}" } }
            lost = answers.transform_values { |answer| answer["lost"] }
            expect(wrong).to be_empty, "#{wrong.join("\n")}\nlost: #{lost}\n#{program.out}"
            stop_processes
          end
        end
      end
    end
  end
end
