# frozen_string_literal: true

require "spec_helper"
require "probescope/tracing/terminal"
require "support/replay"
require "tmpdir"

# How a command reads its command line and prints to a terminal. The answers are recorded output of
# bpftrace.
RSpec.describe "On a terminal, a command" do
  def recorded(program, kind = "one")
    Support::Recordings.read(Support::Recordings.versions.last, program).find do |head, _|
      head[:recording] == kind
    end
  end

  def told(program, *options, kind: "one") = Support::Replay.gem(*recorded(program, kind), *options).text

  def rows(text) = text.lines.grep(/Parser#/)

  # Runs the block with a terminal of this many columns.
  def on_a_terminal(width)
    terminal = Probescope::Tracing::Terminal
    allow(terminal).to receive(:new).and_wrap_original do |new, io, **options|
      io.define_singleton_method(:tty?) { true }
      new.call(io, **options, env: {"COLUMNS" => width.to_s})
    end
    yield
  end

  it "fits its width: paths are relative to the application's folder, and long ones are cut" do
    head, answers = recorded("calls")
    answers.last[:targets].each { |target| target[:folder] = "/app" }
    text = on_a_terminal(200) { Support::Replay.gem(head, answers, "--color", "never").text }
    expect(text).to match(%r{Parser#step2 +lib/parser\.rb:12$})
    text = on_a_terminal(64) { told("calls", "--color", "never") }
    expect(rows(text).map { |line| line.chomp.length }.max).to be <= 90
    expect(rows(text)).to all(match(%r{/a…/parser\.rb:\d+$}))
  end

  it "shortens nothing, and has no colours, if its output is not a terminal" do
    expect(rows(told("calls"))).to all(match(%r{/app/lib/parser\.rb:\d+$}))
    expect(told("hot")).not_to include("\e")
    expect(told("hot", "--color", "always")).to match(/\e\[1;31m *50\.0 %\e\[0m/)
  end

  it "colours large shares" do
    text = on_a_terminal(200) { told("hot") }
    expect(text).to match(/^\e\[1;31m *50\.0 %\e\[0m/)
      .and match(/^\e\[33mprobescope: \d+ samples could not be taken\e\[0m$/)
  end

  it "sorts by any column: figures from the largest, names alphabetically" do
    names = ->(text) { rows(text).map { |line| line[/Parser#step\d/] } }
    expect(names.call(told("hot"))).to eq(%w[Parser#step2 Parser#step1 Parser#step0])
    expect(names.call(told("hot", "--sort", "function"))).to eq(%w[Parser#step0 Parser#step1 Parser#step2])
    expect(names.call(told("calls", "--sort", "MAX")).size).to eq(3)
    answer, = Support::Replay.gem(*recorded("exceptions"), "--sort", "raised", "--json").objects
    expect(answer["rows"].map { |row| row["count"] }).to eq([9, 6, 3])
  end

  it "suggests a command or a column for a misspelt one" do
    expect { Probescope::CLI.start(["exeptions"]) }
      .to output(/no command "exeptions"; did you mean exceptions\?/).to_stderr
    expect { Probescope::CLI.start(%w[hot -p 1 --sort slef]) }
      .to output(/no column "slef"; did you mean SELF\?/).to_stderr
    expect { Probescope::CLI.start(%w[hot -p 1 --color pink]) }
      .to output(/invalid argument: --color pink/).to_stderr
  end

  it "accepts several processes in one option" do
    command = Probescope::CLI.command("calls").new.tap { |one| one.send(:parse, %w[-p 3,4 -p 4 -p 5]) }
    expect(command.send(:order)[:pids]).to eq([3, 4, 5])
    expect { Probescope::CLI.start(%w[calls -p 3,x]) }.to output(/"x" is no process id/).to_stderr
    expect { Probescope::CLI.start(["calls", "-p", ","]) }.to output(/"," is no process id/).to_stderr
  end

  # Runs the block with PROBESCOPE_OPTS set.
  def with_options(text)
    before, ENV["PROBESCOPE_OPTS"] = ENV.fetch("PROBESCOPE_OPTS", nil), text
    yield
  ensure
    ENV["PROBESCOPE_OPTS"] = before
  end

  it "reads options from PROBESCOPE_OPTS, which the command line overrides, and names it in errors" do
    with_options("-d 30 --top '5'") do
      command = Probescope::CLI.command("calls").new.tap { |one| one.send(:parse, %w[-p 3 --top 7]) }
      expect([command.send(:order)[:seconds], command.instance_variable_get(:@top)]).to eq([30.0, 7])
    end
    wrong = {"--tp 3" => /PROBESCOPE_OPTS: invalid option: --tp/, "'" => /PROBESCOPE_OPTS: Unmatched/,
             "calls" => /PROBESCOPE_OPTS holds "calls"/}
    wrong.each do |text, said|
      with_options(text) { expect { Probescope::CLI.start(%w[calls -p 1]) }.to output(said).to_stderr }
    end
  end

  it "writes an answer to a file, and keeps the old file if there is no answer" do
    Dir.mktmpdir do |folder|
      path = File.join(folder, "answer.json")
      expect(told("calls", "--json", "-o", path)).not_to include('"rows"')
      expect(JSON.parse(File.read(path))["rows"].size).to eq(3)
      expect(Dir.children(folder)).to eq(["answer.json"])
      expect { Probescope::CLI.start(["calls", "-p", "1", "-o", File.join(folder, "none", "answer")]) }
        .to output(/cannot write .*none.*\n  try: /).to_stderr
    end
  end

  describe "probescope completion" do
    def script(shell)
      out = StringIO.new
      before, $stdout = $stdout, out
      expect(Probescope::CLI.start(["completion", shell])).to eq(0)
      out.string
    ensure
      $stdout = before
    end

    def completed(*words)
      line =
        "COMP_WORDS=(#{words.join(" ")}); COMP_CWORD=#{words.size - 1}; _probescope; echo \"${COMPREPLY[@]}\""
      IO.popen(["bash", "-c", "#{script("bash")}\n#{line}"], &:read).split
    end

    it "completes commands and their options in bash" do
      expect(completed("probescope", "ex")).to eq(["exceptions"])
      expect(completed("probescope", "hot", "--by")).to eq(["--by-pid", "--by-request", "--by"])
      expect(completed("probescope", "calls", "--by")).to eq(["--by-pid"])
    end

    it "has every command and option for zsh and fish, and refuses other shells" do
      expect(script("zsh")).to start_with("autoload -U +X bashcompinit").and include("_probescope")
      fish = script("fish").lines
      Probescope::CLI::COMMANDS.each_key do |name|
        expect(fish.grep(/-n __fish_use_subcommand -a #{name} -d/).size).to eq(1)
      end
      expect(fish.grep(/__fish_seen_subcommand_from hot'.* -l by-request -d/).size).to eq(1)
      expect { Probescope::CLI.start(%w[completion tcsh]) }
        .to output(/name of a shell: bash, zsh, fish/).to_stderr
    end
  end
end
