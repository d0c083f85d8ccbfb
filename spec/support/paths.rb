# frozen_string_literal: true

module Support
  ROOT = File.expand_path("../..", __dir__)
  # A directory for each Ruby: another Ruby must never load it. Benchmarks trace RUBY=/path, which
  # has compiled it before.
  ABI_DIRECTORY = IO.popen([ENV.fetch("RUBY", RbConfig.ruby), "--disable=gems,rubyopt", "-rrbconfig", "-e",
                            'print RbConfig::CONFIG.values_at("ruby_version", "arch").join("-")'], &:read)
  LIBRARY = File.join(ROOT, "lib/probescope", ABI_DIRECTORY, "probescope.so")
  AUTO = File.join(ROOT, "lib/probescope/auto")
  EXE = File.join(ROOT, "exe/probescope")
  # Where `ruby` and `bundle` are those of this Ruby.
  RUBY_PATH = [RbConfig::CONFIG["bindir"], ENV.fetch("PATH")].join(File::PATH_SEPARATOR)
  # Are this Ruby's stacks read at the tick, where nothing forbids it (ext/probescope/ticks.c)?
  RUBY_TICKS = RUBY_VERSION.match?(/\A3\.[1-4]\./)

  # The environment as it was before Bundler: a process that a spec starts is somebody's
  # application, not ours.
  def self.plain_env
    env = defined?(Bundler) ? Bundler.unbundled_env : ENV.to_h
    env.reject { |name, _| name.start_with?("PROBESCOPE_") }.merge("LANG" => "C.UTF-8")
  end
end
