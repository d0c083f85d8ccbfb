# frozen_string_literal: true

module Truth
  PROGRAMS = File.join(Support::ROOT, "spec/truth/programs")

  # Paths and names of the programs in one language.
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

    # Returns {temperament => commands}.
    def temperaments = @temperaments.to_h { |name| [name, COMMANDS.fetch(name, ALL)] }
    def file(name) = "#{name}#{@suffix}"
    def path(name) = File.join(PROGRAMS, file(name))
    def lines(name) = File.readlines(path(name))
    def function(name) = "#{@module}Work#{@separator}#{name}"
    def python? = @suffix == ".py"
    # Whether hot and lines have a row for collections. Otherwise a collection belongs to the row of
    # the function that it interrupts.
    def collections_apart? = python? || Support::RUBY_TICKS
    # The probe that each command needs.
    def probes = python? ? PROBES_OF_PYTHON : PROBES
    # Name of the latency probe of a function.
    def probe(name) = "Work.#{name}"
  end

  SAMPLED = %w[hot lines].freeze
  ALL = ["calls", "exceptions", "alloc", "backtraces", "requests", "gc", "stat", "latency", "syscalls",
         "offcpu", "on", *SAMPLED].freeze
  # These programs are on the CPU too rarely for samples. All but "served" call a function that sleeps,
  # and in "served" no function is off the CPU for long.
  RARE = %w[calls slow exceptions alloc backtraces requests gc stat latency syscalls offcpu on waits].freeze
  # Commands for temperaments that do not suit every command (flow shows one thread).
  COMMANDS = {"c_calls" => %w[calls stat hot lines], "slow_calls" => [*RARE, "flow"],
              "bursts" => [*RARE, "flow"], "crowd" => RARE, "served" => RARE - %w[slow waits offcpu],
              "parked" => [*ALL, "gvl"], "forks" => RARE - %w[latency], "tasks" => ["slow", *ALL]}.freeze
  # What the gate runs: temperaments in which hooks came late, and the most important ones.
  GATE_COMMANDS = %w[calls exceptions requests stat syscalls].freeze
  GATE = {"system_calls" => [*GATE_COMMANDS, "on"], "pool" => [*GATE_COMMANDS, "offcpu"],
          "crowd" => [*GATE_COMMANDS, "waits"], "forks" => GATE_COMMANDS}.freeze
  TEMPERAMENTS = %w[cpu c_calls system_calls slow_calls pool parked served crowd bursts garbage forks
                    deep_stacks].freeze

  # Ruby with YJIT counts as another language.
  RUBY = {suffix: ".rb", separator: "#", temperaments: TEMPERAMENTS + %w[fibers],
          env: {"RUBY_YJIT_ENABLE" => nil}}.freeze
  # The YJIT of Ruby 3.1 refuses hooks that count calls.
  JIT = RUBY_VERSION >= "3.2" && system(RbConfig.ruby, "--yjit", "-e", "", err: File::NULL)
  LANGUAGES = [Language.new("Ruby", **RUBY),
               *(Language.new("Ruby with YJIT", options: ["--yjit"], **RUBY) if JIT),
               Language.new("Python", suffix: ".py", separator: ".", within: "work.",
                                      temperaments: TEMPERAMENTS + %w[tasks])].freeze
end
