# frozen_string_literal: true

require "rbconfig"
require_relative "probescope/version"
require_relative "probescope/coverage"

# USDT probes in this process. They cost nothing until a tracer attaches, and the hooks are removed
# when the tracer leaves.
#
#   require "probescope/auto"   # or require "probescope"; Probescope.install
module Probescope
  # Raised only by calls with invalid arguments, such as .functions= with malformed patterns.
  # Probescope raises nothing in the application's own code.
  class Error < StandardError; end

  # Each Ruby ABI has a directory of its own for the native library, so that no other Ruby ever
  # loads it.
  ABI_DIRECTORY = RbConfig::CONFIG.values_at("ruby_version", "arch").join("-")
  DEFAULT_MEMORY = 32 << 20

  autoload :Latency, File.join(__dir__, "probescope/latency")
  autoload :Provider, File.join(__dir__, "probescope/provider")
  autoload :Rack, File.join(__dir__, "probescope/rack")
  autoload :Job, File.join(__dir__, "probescope/job")
  autoload :ActiveJob, File.join(__dir__, "probescope/active_job")
  autoload :Sidekiq, File.join(__dir__, "probescope/sidekiq")

  class << self
    # Starts to look for tracers, and may be called repeatedly. Returns true when tracers can attach
    # from now on, false where probes cannot work (see .unavailable_reason). Installs no hook: hooks
    # are installed when a tracer attaches.
    def install
      return false unless available?

      coverage.apply
      calibrate
      # Native.start also registers a handler for the end of the process, which flushes the last
      # part of a second. Such handlers run in the reverse order of their registration: the earlier
      # this file is loaded, the more of the application's own handlers run before it.
      Native.start(memory_limit)
      true
    rescue SystemCallError, Error => e
      @unavailable_reason = e.message
      false
    end

    # Calls .install for code that reports requests or jobs. `probescope requests` prints a note for
    # a process in which nothing reports them.
    def tell_of_requests
      install && Native.requests_told
    end

    # Removes all hooks and ends the watcher. Returns true when something was installed.
    def uninstall
      available? && Native.stop
    end

    # The state of probescope in this process: {available:, reason:, installed:, probes: {name =>
    # [state, reason]}, clock:, memory_used:, memory_limit:, rows_dropped:, flushes:}. Sizes are in
    # bytes, the rest are counts.
    def status
      base = { version: VERSION, available: available?, reason: unavailable_reason }
      available? ? base.merge(Native.status) : base.merge(installed: false)
    end

    # Which functions the function probes cover: :own (the application's files), :all, or an Array
    # of globs. A glob matches paths, or names such as "Order#*". A change takes effect at once,
    # also while a tracer listens.
    def functions = coverage.functions

    def functions=(value)
      coverage.functions = value
      coverage.apply if available?
    end

    # Why this process has no probes; nil when it has them.
    def unavailable_reason
      load_native
      @unavailable_reason
    end

    def available? = unavailable_reason.nil?

    # Called by probescope/auto. RubyGems compiles the extension when it installs the gem. Bundler
    # never compiles a checkout that the Gemfile names by `path:`.
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

    # A precompiled gem uses Debian's name of the platform, x86_64-linux-gnu. Most other builds of
    # Ruby call the same platform x86_64-linux. musl has another name.
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

    # For which Rubies a precompiled gem has the native library, and what to do on another Ruby. A
    # source gem and a checkout contain ext/, and get no such text.
    def others
      return if File.exist?(File.join(__dir__, "../ext/ruby/extconf.rb"))

      built = Dir.glob("*/probescope.so", base: File.join(__dir__, "probescope"))
                 .map { |path| File.dirname(path) }
      ", and this gem has it for #{built.sort.join(", ")}; with a C compiler and Ruby's headers " \
        "`gem install probescope --platform ruby` builds it"
    end

    # PROBESCOPE_MEMORY: a number of bytes, or a number with K or M.
    def memory_limit
      number, unit = ENV.fetch("PROBESCOPE_MEMORY", "").match(/\A(\d+)([KM]?)\z/i)&.captures
      number ? number.to_i * { "K" => 1 << 10, "M" => 1 << 20 }.fetch(unit.upcase, 1) : DEFAULT_MEMORY
    end

    # Raises at known depths. The extension learns from these exceptions how the size of a backtrace
    # relates to its depth, and roughly what a frame costs. This runs once, at the start, before a
    # tracer listens, and takes a quarter of a millisecond. It runs on the stack of a new Fiber,
    # because Ruby 4.0 captures internal frames, such as those of `require`, and does not count
    # them.
    def calibrate
      @calibrate ||= begin
        rounds = Array.new(5) { Fiber.new { [30, 50, 130, 500].map { |depth| raise_at(depth) } }.resume }
        raised = rounds.last.map(&:first)
        times = rounds.map { |round| round.map(&:last) }.transpose.map { |all| all.sort[2] }
        Native.calibrate(raised, raised.map { |exception| exception.backtrace_locations.size }, times)
      end
    end

    # Returns [the exception, how many ns the raise took].
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
