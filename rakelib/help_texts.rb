# frozen_string_literal: true

require "json"
require "open3"
require "rbconfig"

# The --help of each command, of the gem's `probescope` and of the wheel's.
module HelpTexts
  ROOT = File.expand_path("..", __dir__)
  OF_GEM = <<~RUBY
    require "json"
    require "stringio"
    require "probescope/cli"
    texts = Probescope::CLI::COMMANDS.keys.to_h do |command|
      $stdout = StringIO.new
      Probescope::CLI.start([command, "--help"])
      [command, $stdout.string]
    end
    STDOUT.puts JSON.generate(texts)
  RUBY
  # Each version of Python lays argparse's help out differently, so this prints its contents:
  # [[option or argument, text], ...].
  OF_WHEEL = <<~PYTHON
    import argparse, json
    from probescope.command.main import parser
    def row(action):
        values = f" {action.metavar or action.dest.upper()}" if action.nargs != 0 else ""
        options = ", ".join(action.option_strings)
        name = options + values if options else action.metavar or action.dest
        return [name, (action.help or "").replace("%%", "%")]
    commands = next(a for a in parser()._actions if isinstance(a, argparse._SubParsersAction)).choices
    def texts(command):
        rows = [row(action) for action in command._actions]
        return {"about": command.description, "examples": command.epilog, "rows": rows}
    print(json.dumps({name: texts(command) for name, command in commands.items()}))
  PYTHON

  module_function

  # {"hot" => text, ...}
  def gem
    @gem ||= JSON.parse(output({}, RbConfig.ruby, "-I#{ROOT}/lib", "-e", OF_GEM))
  end

  # {"trace" => {"about" => text, "examples" => text, "rows" => [["-p, --pid PID", "the process"],
  # ...]}, ...}
  def wheel
    python = ENV.fetch("PYTHON", "python3")
    @wheel ||= JSON.parse(output({"PYTHONPATH" => "#{ROOT}/python"}, python, "-c", OF_WHEEL))
  end

  # {"hot" => ["-p", "--pid", ...], ...}
  def options_of_gem
    gem.transform_values { |text| text.scan(/^\s+(?:(-\w), |\s+)(--[\w-]+)/).flatten.compact }
  end

  def options_of_wheel
    wheel.transform_values do |help|
      help["rows"].flat_map { |name, _| name.scan(/(?<!\S)--?[\w-]+/) }
    end
  end

  def output(environment, *command)
    text, errors, status = Open3.capture3(environment, *command)
    raise errors unless status.success?

    text
  end
end
