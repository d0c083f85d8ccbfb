# frozen_string_literal: true

require "rbconfig"
require_relative "probescope/version"
require_relative "probescope/coverage"

# USDT probes in this process: free until a tracer attaches, gone again when it leaves.
#
#   require "probescope/auto"   # or require "probescope"; Probescope.install
module Probescope
  # Raised by nothing of ours while the application runs: only .install! and .functions= with bad
  # patterns raise.
  class Error < StandardError; end

  # The native library is kept in a directory of its Ruby, so that no other Ruby ever loads it.
  ABI_DIRECTORY = RbConfig::CONFIG.values_at("ruby_version", "arch").join("-")
  DEFAULT_MEMORY = 32 << 20

  autoload :Latency, File.join(__dir__, "probescope/latency")
  autoload :Provider, File.join(__dir__, "probescope/provider")
  autoload :Rack, File.join(__dir__, "probescope/rack")
  autoload :Job, File.join(__dir__, "probescope/job")
  autoload :ActiveJob, File.join(__dir__, "probescope/active_job")
  autoload :Sidekiq, File.join(__dir__, "probescope/sidekiq")

  class << self
    # Starts to look for tracers. Idempotent; true when probes can be attached from now on, false
    # where they cannot (see .unavailable_reason). Installs no hook: that happens when a tracer
    # comes.
    def install
      return false unless available?

      coverage.apply
      calibrate
      # Also stops at the end, so that the last part of a second counts too: after the application's
      # own at_exit, as early as we are loaded.
      Native.start(memory_limit)
      true
    rescue SystemCallError, Error => e
      @unavailable_reason = e.message
      false
    end

    # The same, for what tells of requests or jobs: `probescope requests` says so where nothing
    # does.
    def tell_of_requests
      install && Native.requests_told
    end

    # Takes out all hooks and ends the watcher. True when something was installed.
    def uninstall
      available? && Native.stop
    end

    # What the process knows of itself: {available:, reason:, installed:, probes: {name => [state,
    # reason]}, clock:, memory_used:, memory_limit:, rows_dropped:, flushes:}; bytes and counts.
    def status
      base = { version: VERSION, available: available?, reason: unavailable_reason }
      available? ? base.merge(Native.status) : base.merge(installed: false)
    end

    # Which functions the function probes cover: :own (the application's files), :all, or globs over
    # paths and over names such as "Order#*". Takes effect at once, also while a tracer listens.
    def functions = coverage.functions

    def functions=(value)
      coverage.functions = value
      coverage.apply if available?
    end

    # Why there are no probes in this process; nil when there are.
    def unavailable_reason
      load_native
      @unavailable_reason
    end

    def available? = unavailable_reason.nil?

    # For probescope/auto: a gem is compiled when it is installed, and a checkout that a Gemfile
    # leads to by path: never is.
    def complain_of_checkout
      root = File.dirname(__dir__)
      return if File.exist?(native_path) || !File.exist?(File.join(root, "Rakefile"))

      warn("probescope: no probes: #{unavailable_reason}. " \
           "Bundler compiles nothing by path: bin/setup run, in #{root}")
    end

    private

    def coverage = @coverage ||= Coverage.new

    def load_native
      return if defined?(@loaded)

      @loaded = true
      @unavailable_reason = reason_not_to_load
      require native_path unless @unavailable_reason
    rescue LoadError => e
      @unavailable_reason = "the native library does not load: #{e.message}"
    end

    # A gem that comes compiled has Debian's name of the machine; most other builds of Ruby call it
    # x86_64-linux. musl has another name.
    def native_path
      names = [ABI_DIRECTORY, ABI_DIRECTORY.sub(/-linux\z/, "-linux-gnu")]
      paths = names.map { |name| File.join(__dir__, "probescope", name, "probescope.so") }
      paths.find { |path| File.exist?(path) } || paths.first
    end

    def reason_not_to_load
      return if File.exist?(native_path)

      built = File.join(__dir__, "probescope", "unavailable.txt")
      return "the native library was not built: #{File.read(built).strip}" if File.exist?(built)

      "the native library was not built for this Ruby (#{ABI_DIRECTORY})#{others}"
    end

    # Which Rubies a gem that comes compiled has it for, and what to do on another one. A gem of
    # sources and a checkout have ext/.
    def others
      return if File.exist?(File.join(__dir__, "../ext/probescope/extconf.rb"))

      built = Dir.glob("*/probescope.so", base: File.join(__dir__, "probescope"))
                 .map { |path| File.dirname(path) }
      ", and this gem has it for #{built.sort.join(", ")}; with a C compiler and Ruby's headers " \
        "`gem install probescope --platform ruby` builds it"
    end

    # PROBESCOPE_MEMORY in bytes, or with K or M.
    def memory_limit
      number, unit = ENV.fetch("PROBESCOPE_MEMORY", "").match(/\A(\d+)([KM]?)\z/i)&.captures
      number ? number.to_i * { "K" => 1 << 10, "M" => 1 << 20 }.fetch(unit.upcase, 1) : DEFAULT_MEMORY
    end

    # Raises at known depths, so that the extension learns how a backtrace's size tells its depth,
    # and roughly what a frame costs. Once, at the start: a quarter of a millisecond, and nobody
    # listens yet. On a stack of its own: Ruby 4.0 captures frames of its own, such as those of
    # `require`, and does not count them.
    def calibrate
      @calibrate ||= begin
        rounds = Array.new(5) { Fiber.new { [30, 50, 130, 500].map { |depth| raise_at(depth) } }.resume }
        raised = rounds.last.map(&:first)
        times = rounds.map { |round| round.map(&:last) }.transpose.map { |all| all.sort[2] }
        Native.calibrate(raised, raised.map { |exception| exception.backtrace_locations.size }, times)
      end
    end

    # [the exception, ns that it took]
    def raise_at(depth)
      return raise_at(depth - 1) if depth.positive?

      began = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
      begin
        raise Error, "calibration"
      rescue Error => e
        [e, Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - began]
      end
    end
  end
end

require_relative "probescope/railtie" if defined?(Rails::Railtie)
