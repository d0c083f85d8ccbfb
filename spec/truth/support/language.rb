# frozen_string_literal: true

module Truth
  PROGRAMS = File.join(Support::ROOT, "spec/truth/programs")

  # How the programs are called and named in one language.
  class Language
    attr_reader :name, :options, :suffix, :env

    def initialize(name, suffix:, separator:, temperaments:, within: "", options: [], env: {})
      @name = name
      @suffix = suffix
      @separator = separator
      @module = within
      @options = options
      @env = env
      @temperaments = temperaments
    end

    # {temperament => commands}
    def temperaments = @temperaments.to_h { |name| [name, COMMANDS.fetch(name, ALL)] }
    def file(name) = "#{name}#{@suffix}"
    def path(name) = File.join(PROGRAMS, file(name))
    def lines(name) = File.readlines(path(name))
    def function(name) = "#{@module}Work#{@separator}#{name}"
    def python? = @suffix == ".py"
    # Do hot and lines have a row of collections? Else they are in that of whoever was interrupted.
    def collections_apart? = python? || Support::RUBY_TICKS
    # How its latency probes are called.
    def probe(name) = "Work.#{name}"
  end

  SAMPLED = %w[hot lines].freeze
  ALL = ["calls", "exceptions", "alloc", "backtraces", "requests", "gc", "stat", "latency", *SAMPLED].freeze
  # Together with their rests they are on the CPU too rarely for samples.
  RARE = %w[calls slow exceptions alloc backtraces requests gc stat latency].freeze
  # What makes sense of a temperament (flow: of one thread), where that is not all.
  COMMANDS = {"c_calls" => %w[calls stat hot lines], "slow_calls" => [*RARE, "flow"],
              "bursts" => [*RARE, "flow"], "crowd" => RARE, "served" => RARE - %w[slow],
              "parked" => [*ALL, "gvl"], "forks" => RARE - %w[latency], "tasks" => ["slow", *ALL]}.freeze
  # Those in which hooks came late, or on which most depends.
  GATE = %w[system_calls pool crowd forks].freeze
  GATE_COMMANDS = %w[calls exceptions requests stat].freeze
  TEMPERAMENTS = %w[cpu c_calls system_calls slow_calls pool parked served crowd bursts garbage forks
                    deep_stacks].freeze

  # With YJIT it is a language of its own.
  RUBY = {suffix: ".rb", separator: "#", temperaments: TEMPERAMENTS + %w[fibers],
          env: {"RUBY_YJIT_ENABLE" => nil}}.freeze
  # Ruby 3.1's refuses what counts calls.
  JIT = RUBY_VERSION >= "3.2" && system(RbConfig.ruby, "--yjit", "-e", "", err: File::NULL)
  LANGUAGES = [Language.new("Ruby", **RUBY),
               *(Language.new("Ruby with YJIT", options: ["--yjit"], **RUBY) if JIT),
               Language.new("Python", suffix: ".py", separator: ".", within: "work.",
                                      temperaments: TEMPERAMENTS + %w[tasks])].freeze
end
