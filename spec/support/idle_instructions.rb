# frozen_string_literal: true

require "open3"
require "rbconfig"
require "tmpdir"
require_relative "paths"

module Support
  # What a Ruby without a tracer costs, in instructions. valgrind counts them, so the result does
  # not depend on the machine's speed.
  #
  # Callgrind slows Ruby down fifty times. The difference of a long and a short run gives the cost
  # of a call without the start-up. Only the main thread is counted, because the library's watcher
  # has its own thread.
  #
  # Both processes have a second thread, like an application server. From the second thread on,
  # glibc's malloc takes locks, whoever starts that thread. A process with a single thread would see
  # only this difference (1 % of a raise).
  module IdleInstructions
    WORKS = {"a method call" => "callee(i)", "an allocation with `initialize`" => "Thing.new",
             "a raise" => "begin; raise 'x'; rescue; end"}.freeze
    SHORT = 20_000
    LONG = 120_000
    SETUP = "GC.disable; Thread.new { sleep }; def callee(x) = x; class Thing; def initialize = @a = 1; end\n"

    module_function

    # Returns the instructions of the main thread for one turn of the work.
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
