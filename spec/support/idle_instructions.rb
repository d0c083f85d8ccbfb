# frozen_string_literal: true

require "open3"
require "rbconfig"
require "tmpdir"
require_relative "paths"

module Support
  # What a Ruby that nobody traces spends, in instructions: valgrind counts them, so the machine's
  # speed plays no part.
  #
  # Callgrind slows Ruby down fifty times, so the difference of a long and a short run is what a
  # call costs: start-up cancels out. Only the main thread is counted; the library's watcher has one
  # of its own.
  #
  # Both processes have a second thread, as an application server has: glibc's malloc takes locks
  # from the second thread on, whoever starts it, and that is the one difference (1 % of a raise)
  # that a process of a single thread would see.
  module IdleInstructions
    WORKS = {"a method call" => "callee(i)", "an allocation with `initialize`" => "Thing.new",
             "a raise" => "begin; raise 'x'; rescue; end"}.freeze
    SHORT = 20_000
    LONG = 120_000
    SETUP = "GC.disable; Thread.new { sleep }; def callee(x) = x; class Thing; def initialize = @a = 1; end\n"

    module_function

    # Instructions that the main thread spends on one turn of the work.
    def of(work, loaded:)
      per_run = [SHORT, LONG].map do |turns|
        callgrind("i = 0; while i < #{turns}; #{work}; i += 1; end", loaded: loaded)
      end
      (per_run[1] - per_run[0]) / (LONG - SHORT).to_f
    end

    def callgrind(program, loaded:)
      preload = loaded ? ["-r#{AUTO}"] : []
      Dir.mktmpdir do |dir|
        out = "#{dir}/callgrind.out"
        command = ["valgrind", "--tool=callgrind", "--separate-threads=yes", "--callgrind-out-file=#{out}",
                   RbConfig.ruby, "--disable-gems", *preload, "-e", SETUP + program]
        text, status = Open3.capture2e(Support.plain_env, *command, unsetenv_others: true)
        raise text unless status.success?

        File.read("#{out}-01")[/^(?:summary|totals): (\d+)/, 1].to_i
      end
    end
  end
end
