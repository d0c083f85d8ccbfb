# frozen_string_literal: true

require "json"
require "stringio"
require "support/recordings"
require "probescope/cli"

module Support
  # Runs a command of gem or wheel on recorded output of bpftrace, without BPF. Returns its output as
  # text.
  module Replay
    # What differs between two recordings of the same work.
    VARYING = {
      /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z/ => "YYYY-MM-DDThh:mm:ss.uuuuuuZ",
      /\b\d\d:\d\d:\d\d(\.\d{3})?\b/ => 'hh:mm:ss\1',
      /(?<=hh:mm:ss)\.\d{3}/ => ".mmm", /(waited (?:up to )?)[\d.]+ \w+ for/ => '\1N ms for',
      /("waited_ns": )\d+/ => '\1N'
    }.freeze

    module_function

    # text: the command line, the output and stderr. objects: the JSON objects in the output.
    Told = Struct.new(:text, :objects)

    # Returns the gem's output as a Told. argv: further arguments, on which the program does not
    # depend.
    def gem(head, answers, *argv)
      words = [head[:command], *head[:pids].flat_map { |pid| ["-p", pid.to_s] }, "-d", "2", *head[:argv],
               *argv]
      out, err = captured { command(words).then { |command| play(command, answers) } }
      objects = argv.include?("--json") ? out.lines.map { |line| JSON.parse(line) } : []
      out = "#{JSON.pretty_generate(objects.first)}\n" if objects.one?
      Told.new(section("probescope #{words.join(" ")}", out, err), objects)
    end

    def command(words)
      Probescope::CLI.command(words.first).new.tap { |command| command.send(:parse, words.drop(1)) }
    end

    def play(command, answers)
      command.send(:prepare)
      answers.each { |answer| command.send(:told, answer) }
      command.send(:report, command.send(:result))
    rescue Probescope::Tracing::Error => e
      Probescope::CLI.complain(e)
    end

    # Returns the output of `python -m probescope trace` for one process as a Told.
    def wheel(head, program, answers, *argv)
      pid = head[:pids].first
      lines = answers.filter_map { |answer| answer[:line] if answer[:is] == "output" }
      output = lines.join("\n").force_encoding(Encoding::ISO_8859_1).encode(Encoding::UTF_8)
      python.puts(JSON.generate({program: program, pid: pid, argv: head[:argv], json: argv.include?("--json"),
                                 known: known(answers), ended: target(answers)[:ended], output: output}))
      out, err = JSON.parse(python.gets || raise("the wheel's command ended on #{program}"))
      objects = argv.include?("--json") ? out.lines.map { |line| JSON.parse(line) } : []
      out = "#{JSON.pretty_generate(objects.first)}\n" if objects.one?
      command = ["python -m probescope trace #{program} -p #{pid}",
                 *(head[:argv] if head[:command] == "on"), *argv]
      Told.new(section(command.join(" "), out, err), objects)
    end

    # The process's own state at the end, as the wheel's command reads it from the process.
    def known(answers)
      target = target(answers)
      served = target[:serves].to_h { |name| [name.to_s, {state: "off"}] }
      {
        **target.slice(:runtime, :version, :waited_ns, :threads, :more_threads, :files),
        looking_ns: target[:tells_of_looking] ? 0 : nil,
        flags: target[:tells_of_requests] ? ["requests"] : [],
        probes: {**served, **target[:probes].transform_keys(&:to_s)}
      }
    end

    # The process that was traced, in its last known state.
    def target(answers) = answers.find { |answer| answer[:is] == "ended" }[:targets].first

    # One Python serves all replays. It ends when this process ends and closes its input.
    def python
      env = Support.plain_env.merge(Python.env(loaded: false), "TZ" => "UTC")
      @python ||= IO.popen(env, [Python.interpreter, File.join(ROOT, "tests/replay.py")], "r+",
                           unsetenv_others: true)
    end

    def section(title, out, err)
      text = "$ #{title}\n#{out}#{"--- stderr\n#{err}" unless err.empty?}\n"
      VARYING.reduce(text) { |varying, (pattern, fixed)| varying.gsub(pattern, fixed) }
    end

    def captured
      zone, ENV["TZ"] = ENV.fetch("TZ", nil), "UTC"
      before = [$stdout, $stderr]
      $stdout, $stderr = StringIO.new, StringIO.new
      yield
      [$stdout.string, $stderr.string]
    ensure
      $stdout, $stderr = before
      ENV["TZ"] = zone
    end
  end
end
