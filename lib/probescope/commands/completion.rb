# frozen_string_literal: true

require_relative "base"

module Probescope
  module Commands
    # Prints the scripts with which shells complete command lines.
    class Completion < Base
      USAGE = "completion bash|zsh|fish"
      ABOUT = <<~TEXT
        Prints a script with which a shell completes commands, options and process ids.
      TEXT
      EXAMPLES = <<~TEXT
        source <(probescope completion bash)                                             in ~/.bashrc
        source <(probescope completion zsh)                                              in ~/.zshrc, behind compinit
        probescope completion fish > ~/.config/fish/completions/probescope.fish
      TEXT
      SHELLS = %w[bash zsh fish].freeze
      # The processes with the library that this user may see.
      PIDS = "probescope ps --json 2>/dev/null | grep -o '\"pid\":[0-9]*' | grep -o '[0-9]*'"

      private

      def arguments(rest)
        @shell = rest.first
        return if rest.one? && SHELLS.include?(@shell)

        raise CLI::Usage.new("completion takes the name of a shell: #{SHELLS.join(", ")}",
                             "probescope completion bash")
      end

      def call
        puts send(@shell)
        0
      end

      # {command => [[spellings of an option, its meaning], ...]}
      def options_of_commands
        @options_of_commands ||= CLI::COMMANDS.keys.to_h do |name|
          switches = CLI.command(name).new.send(:parser).top.list.grep(OptionParser::Switch)
          [name, switches.map { |switch| [[*switch.short, *switch.long], switch.desc.first.to_s] }]
        end
      end

      def words(options) = options.flat_map(&:first).join(" ")

      def bash
        cases = options_of_commands.map { |name, options| "      #{name}) words=\"#{words(options)}\" ;;" }
        <<~SHELL
          _probescope() {
            local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words
            if [ "$COMP_CWORD" = 1 ]; then
              words="#{CLI::COMMANDS.keys.join(" ")} --help --version"
            elif [ "$before" = -p ] || [ "$before" = --pid ]; then
              words=$(#{PIDS})
            else
              case ${COMP_WORDS[1]} in
          #{cases.join("\n")}
              esac
            fi
            COMPREPLY=($(compgen -W "$words" -- "$word"))
          }
          complete -o default -F _probescope probescope
        SHELL
      end

      def zsh = "autoload -U +X bashcompinit && bashcompinit\n#{bash}"

      def fish
        commands = CLI::COMMANDS.map do |name, about|
          "complete -c probescope -f -n __fish_use_subcommand -a #{name} -d #{quoted(about)}"
        end
        options = options_of_commands.flat_map do |name, all|
          all.map do |words, about|
            "#{fish_for(name)} #{words.map { |word| fish_word(word) }.join(" ")} -d #{quoted(about)}"
          end
        end
        traced = options_of_commands.select { |_, all| words(all).include?("--pid") }.keys
        pids = "#{fish_for(traced.join(" "))} -s p -l pid -x -a #{quoted("(#{PIDS})")}"
        [*commands, *options, pids].join("\n")
      end

      def fish_for(commands) = "complete -c probescope -n '__fish_seen_subcommand_from #{commands}'"

      def fish_word(word)
        word.start_with?("--") ? "-l #{word.delete_prefix("--")}" : "-s #{word.delete_prefix("-")}"
      end

      def quoted(text) = "'#{text.gsub(/['\\]/) { |char| "\\#{char}" }}'"
    end
  end
end
