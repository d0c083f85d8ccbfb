# frozen_string_literal: true

require_relative "help_texts"

# Generates docs/reference/commands.md: the --help of each command, for readers in a browser.
module CommandsPage
  PATH = "docs/reference/commands.md"

  module_function

  def text
    gem = HelpTexts.gem.map { |command, help| "### `probescope #{command}`\n\n```text\n#{help}```" }
    wheel = HelpTexts.wheel.map do |command, help|
      "### `venv/bin/probescope #{command}`\n\n#{of_wheel(help)}"
    end
    <<~MARKDOWN
      <!-- Generated from the commands' own help by `rake generate`. Do not edit. -->
      # Commands and options

      The gem's `probescope` has all commands and reads processes of both languages. The wheel's
      `probescope`, which pip installs beside the virtualenv's `python`, has the commands
      [below](#the-wheels-command). [The questions](../index.md) show what each command is for.

      Exit status of both: 0 if the work is done; 1 if it could not be done (one line gives the reason,
      the next line says what to do); 2 if the command line is wrong; 130 if the command is interrupted
      before it has anything to show.

      ## The gem's command

      #{gem.join("\n\n")}

      ## The wheel's command

      #{wheel.join("\n\n")}
    MARKDOWN
  end

  def of_wheel(help)
    rows = help["rows"].map { |name, about| "| `#{name.gsub("|", "\\|")}` | #{about.gsub("|", "\\|")} |" }
    about = help["about"].sub(/\A./, &:upcase)
    "#{about}.\n\n| | |\n|---|---|\n#{rows.join("\n")}\n\n```text\n#{help["examples"]}\n```"
  end

  def write(root) = File.write(File.join(root, PATH), text)
end
