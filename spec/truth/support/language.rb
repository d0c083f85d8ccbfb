# frozen_string_literal: true

module Truth
  PROGRAMS = File.join(Support::ROOT, "spec/truth/programs")

  # How the programs are called and named in one language.
  class Language
    attr_reader :name

    def initialize(name, suffix:, separator:, temperaments:, within: "")
      @name = name
      @suffix = suffix
      @separator = separator
      @module = within
      @temperaments = temperaments
    end

    # {temperament => commands}
    def temperaments = @temperaments.to_h { |name| [name, COMMANDS.fetch(name, ALL)] }
    def file(name) = "#{name}#{@suffix}"
    def path(name) = File.join(PROGRAMS, file(name))
    def lines(name) = File.readlines(path(name))
    def function(name) = "#{@module}Work#{@separator}#{name}"
  end

  ALL = %w[calls exceptions alloc backtraces hot].freeze
  # What makes sense of a temperament, where that is not all.
  COMMANDS = {"c_calls" => %w[calls hot], "slow_calls" => %w[slow calls exceptions], "forks" => %w[calls exceptions alloc backtraces],
              "crowd" => %w[calls exceptions alloc backtraces]}.freeze
  # Those in which hooks came late, or on which most depends.
  GATE = %w[system_calls pool crowd forks].freeze
  TEMPERAMENTS = %w[cpu c_calls system_calls slow_calls pool crowd bursts forks deep_stacks].freeze

  LANGUAGES = [Language.new("Ruby", suffix: ".rb", separator: "#", temperaments: TEMPERAMENTS + %w[fibers]),
               Language.new("Python", suffix: ".py", separator: ".", within: "work.", temperaments: TEMPERAMENTS + %w[tasks])].freeze
end
