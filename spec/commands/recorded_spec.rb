# frozen_string_literal: true

require "spec_helper"
require "support/replay"
require "support/schemas"

# Compares every table and JSON of gem and wheel with spec/fixtures/golden, on what real versions of
# bpftrace printed (spec/fixtures/bpftrace). It needs no BPF. The output is the same for each
# version; `rake fixtures:golden` writes it.
RSpec.describe "On what bpftrace printed once" do
  golden = File.join(Support::ROOT, "spec/fixtures/golden")
  recordings = Support::Recordings
  define_method(:recordings) { recordings }

  # Options of the command that do not change its program.
  def options(kind, command)
    several = [[], ["--by-pid"]] if kind == "several"
    some = [["--top", "1", "--min", "20"]] if %w[one full].include?(kind) && min?(command)
    [*(several || [[]]), *some].flat_map { |words| [words, [*words, "--json"]] }
  end

  # Commands that are no tables have no MIN.
  def min?(command) = Probescope::CLI.command(command).then { |one| one.const_defined?(:MIN) && one::MIN }

  # Several processes in a live recording come in a different order each time, so these are left
  # out.
  def gem(program, recorded)
    others = recordings::LIVE.key?(program) ? %w[lost several] : []
    recorded.reject { |head, _| others.include?(head[:recording]) }.flat_map do |head, answers|
      options(head[:recording], head[:command]).map { |words| Support::Replay.gem(head, answers, *words) }
    end
  end

  # The wheel traces one process.
  def wheel(program, recorded)
    of_one = recorded.select { |head, _| %w[one hostile full strings].include?(head[:recording]) }
    of_one.flat_map do |head, answers|
      [[], ["--json"]].map { |words| Support::Replay.wheel(head, program, answers, *words) }
    end
  end

  # Compares the text with the file, or writes the file.
  def expect_golden(path, text)
    if ENV["PROBESCOPE_GOLDEN"] == "write"
      FileUtils.mkdir_p(File.dirname(path))
      return File.write(path, text)
    end
    expect(text).to eq(File.read(path))
  end

  recordings.versions.each do |version|
    recordings::PROGRAMS.each do |program, (command)|
      it "of bpftrace #{version}, #{program}: the gem's tables and JSON are as recorded, and fit " \
         "the schema" do
        told = gem(program, recordings.read(version, program))
        expect(told.flat_map(&:objects)).to fit_the_schema_of(command)
        expect_golden(File.join(golden, "gem", "#{program}.txt"), told.map(&:text).join)
      end

      it "of bpftrace #{version}, #{program}: the wheel's lines are as recorded" do
        told = wheel(program, recordings.read(version, program))
        expect(told.flat_map(&:objects)).to fit_the_schema_of(command)
        expect_golden(File.join(golden, "wheel", "#{program}.txt"), told.map(&:text).join)
      end

      next if command == "flow" # the gem shows one thread, the wheel all

      it "of bpftrace #{version}, #{program}: the JSON of gem and wheel is the same" do
        recorded = recordings.read(version, program).select do |head, _|
          %w[one hostile full strings].include?(head[:recording])
        end
        recorded.each do |head, answers|
          gem, wheel = [Support::Replay.gem(head, answers, "--json"),
                        Support::Replay.wheel(head, program, answers, "--json")]
          expect(timeless(wheel.objects)).to eq(timeless(gem.objects)), "#{program} #{head[:recording]}"
        end
      end
    end
  end

  # The recordings are of another day, and only the gem's command records the time of day.
  def timeless(value)
    case value
    when Array then value.map { |one| timeless(one) }
    when Hash then value.except("begin", "end", "at").transform_values { |one| timeless(one) }
    else value
    end
  end

  # One process has three rows of 1, 2 and 3 calls, one has two rows and one has one. Each flushes
  # three times.
  def live_sums(lines) = %w[calls raises gc_ns samples].map { |figure| lines.sum { |line| line[figure] } }

  recordings.versions.each do |version|
    it "of bpftrace #{version}: stat adds up several processes, whatever their order" do
      head, answers = recordings.read(version, "stat").find { |one, _| one[:recording] == "several" }
      [[], ["--by-pid"]].each do |options|
        lines = Support::Replay.gem(head, answers, "--json", *options).objects
        expect(lines).to fit_the_schema_of("stat")
        expect(live_sums(lines))
          .to eq([3 * (6 + 3 + 1), 3 * (6 + 3 + 1), 3 * (3 + 3 + 1) * 1_000_000, 3 * (3 + 2 + 1)])
        expect(lines.flat_map { |line| line["pids"] }.tally).to eq(40_001 => 3, 40_002 => 3, 40_003 => 3)
      end
    end

    # The number of lost events depends on the machine.
    it "of bpftrace #{version}: gem and wheel count events that the kernel lost" do
      head, answers = recordings.read(version, "flow").find { |one, _| one[:recording] == "lost" }
      told = Support::Replay.gem(head, answers).text
      number = told[/^probescope: (\d+) events were lost between the kernel and bpftrace$/, 1].to_i
      expect(number).to be_positive
      wheel = Support::Replay.wheel(head, "flow", answers)
      expect(wheel.text)
        .to include("\nprobescope: #{number} events were lost between the kernel and bpftrace")
      json = Support::Replay.gem(head, answers, "--json").objects
      expect(json).to fit_the_schema_of("flow")
    end
  end

  # bpftrace 0.17 has a buffer for each CPU. The kernel reports a loss to it with the next event of
  # the same CPU, and there may be none. bpftrace's count also has lost lines of seconds.
  it "of bpftrace 0.17: gem and wheel count lost events of a process that ended, without a report" do
    head, answers = recordings.read("0.17", "flow").find { |one, _| one[:recording] == "lost" }
    reported, silent = answers.partition { |answer| answer[:line].to_s.include?('"lost_events"') }
    lost = reported.sum { |answer| JSON.parse(answer[:line])["data"]["events"] }
    silent.last[:targets].first[:ended] = true
    [Support::Replay.gem(head, silent), Support::Replay.wheel(head, "flow", silent)].each do |told|
      number = told.text[/^probescope: (\d+) events were lost between the kernel and bpftrace$/, 1].to_i
      expect(number).to be_between(lost - 2, lost)
    end
  end

  it "has recordings of several versions, for every program and kind" do
    expect(recordings.versions).to include("0.17", "0.20", "0.23", "0.27")
    recorded = recordings.versions.flat_map do |version|
      recordings::PROGRAMS.keys.map { |program| [version, program, recordings.all.fetch(program)] }
    end
    recorded.each do |version, program, expected|
      expect(recordings.read(version, program).map { |head, _| head[:recording] })
        .to eq(expected.map(&:kind)), "#{version} #{program}"
    end
  end
end
