# frozen_string_literal: true

module Support
  ROOT = File.expand_path("../..", __dir__)
  # Each Ruby has its own directory: another Ruby must never load this library. Benchmarks trace
  # RUBY=/path, for which it is compiled before.
  ABI_DIRECTORY = IO.popen([ENV.fetch("RUBY", RbConfig.ruby), "--disable=gems,rubyopt", "-rrbconfig", "-e",
                            'print RbConfig::CONFIG.values_at("ruby_version", "arch").join("-")'], &:read)
  LIBRARY = File.join(ROOT, "lib/probescope", ABI_DIRECTORY, "probescope.so")
  AUTO = File.join(ROOT, "lib/probescope/auto")
  EXE = File.join(ROOT, "exe/probescope")
  # A PATH with `ruby` and `bundle` of this Ruby.
  RUBY_PATH = [RbConfig::CONFIG["bindir"], ENV.fetch("PATH")].join(File::PATH_SEPARATOR)
  # Whether this Ruby's stacks are read at the tick, unless something forbids it
  # (ext/ruby/ticks.c).
  RUBY_TICKS = RUBY_VERSION.match?(/\A3\.[1-4]\./)

  # The environment before Bundler, for the command. exe/probescope finds the checkout's gems by
  # itself, and Bundler would use twice the CPU of a start of the command.
  def self.command_env = defined?(Bundler) ? Bundler.unbundled_env : ENV.to_h

  # A process that a spec starts is like a user's application.
  def self.plain_env
    command_env.reject { |name, _| name.start_with?("PROBESCOPE_") }.merge("LANG" => "C.UTF-8")
  end
end
