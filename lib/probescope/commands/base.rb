# frozen_string_literal: true

require "optparse"
require_relative "../cli"
require_relative "../tracing/program"

module Probescope
  module Commands
    # Parses the command line of a command. A command defines USAGE, ABOUT and EXAMPLES, adds its
    # options in #options, and does its work in #call, which returns the exit status.
    class Base
      # argv: the arguments after the command's name.
      def run(argv)
        @help = false
        rest = parse(argv)
        return puts(parser.help) || 0 if @help

        arguments(rest)
        call
      rescue OptionParser::ParseError => e
        raise CLI::Usage.new(e.message.gsub(/\n\s*/, ". "), "probescope #{name} --help")
      end

      private

      def parse(argv)
        parser.permute(argv)
      rescue ArgumentError # raised in the regular expressions of OptionParser
        raise CLI::Usage.new("that is no valid text", "probescope #{name} --help")
      end

      def name = self.class.name.split("::").last.downcase

      def parser
        @parser ||= OptionParser.new do |o|
          o.banner = "Usage: probescope #{self.class::USAGE}\n\n#{self.class::ABOUT}"
          o.separator "\nOptions:"
          options(o)
          o.on("-h", "--help", "this text") { @help = true }
          o.separator "\nExamples:\n#{self.class::EXAMPLES.gsub(/^/, "  ")}"
        end
      end

      def options(_parser); end

      # Takes the arguments that are no options. By default there must be none.
      def arguments(rest)
        return if rest.empty?

        text = rest.first
        option = time_option if text.match?(TIME)
        takes = option ? "a time is given with #{option}" : "usage: probescope #{self.class::USAGE}"
        raise CLI::Usage.new("unexpected argument #{text.inspect}; #{takes}",
                             option ? "#{option} #{text}" : "probescope #{name} --help")
      end

      # The option that takes a time such as "10ms". nil if the command has none.
      def time_option
        switches = parser.top.list.grep(OptionParser::Switch)
        switches.find { |switch| switch.arg.to_s.strip == "TIME" }&.long&.first
      end

      def pid_option(parser)
        parser.on("-p", "--pid PID", "the process") do |text|
          raise CLI::Usage.new("one process at a time", "probescope #{name} -p #{@pid}") if @pid

          @pid = process_id(text)
        end
      end

      TIME_UNITS = {"ns" => 1, "us" => 1e3, "ms" => 1e6, "s" => 1e9}.freeze
      TIME = /\A(\d+(?:\.\d+)?)(ns|us|ms|s)\z/

      # "10ms", "1.5s" as nanoseconds. example: what the error message suggests for a malformed
      # time.
      def duration(text, example)
        number, unit = text.match(TIME)&.captures
        raise CLI::Usage.new("#{text.inspect} is no time", example) unless number

        (number.to_f * TIME_UNITS.fetch(unit)).round
      end

      # A time in ns, for which there must be a probe. next_step: for a time below all probes.
      def slow(text, option, next_step)
        time = duration(text, "#{option} 10ms")
        return time if Tracing::Program.threshold(time)

        raise CLI::Usage.new("no probe fires for calls under 1ms", next_step)
      end

      # Returns [1, 2] for "1,2".
      def process_ids(text)
        found = text.split(",")
        found = [text] if found.empty?
        found.map { |one| process_id(one) }
      end

      def process_id(text)
        pid = Integer(text, 10, exception: false)
        pid&.positive? ? pid : raise(CLI::Usage.new("#{text.inspect} is no process id", "probescope ps"))
      end
    end
  end
end
