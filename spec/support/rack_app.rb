# frozen_string_literal: true

require_relative "web_app"

module Support
  # Runs examples/rack_app as in production: Puma with two workers, in its own process group.
  class RackApp < WebApp
    DIRECTORY = File.join(ROOT, "examples/rack_app")
    # Puma prints this for each worker, and the address on an earlier line.
    BOOTED = /Worker (\d+) \(PID: (\d+)\) booted in .*, phase: (\d+)$/

    # Whether the gems are installed. bin/setup installs them where Bundler's setting for this
    # directory points.
    def self.gems?
      return @gems if defined?(@gems)

      @gems = system(Support.plain_env, RbConfig.ruby, "-S", "bundle", "check",
                     chdir: DIRECTORY, unsetenv_others: true, out: File::NULL, err: File::NULL)
    end

    # env: the switches of its README, such as "FIXED" => "parser".
    def initialize(env: {}, ruby: RbConfig.ruby)
      super(ruby, "-S", "bundle", "exec", "puma", "-C", "config/puma.rb",
            env: Support.plain_env.merge("PORT" => "0", **env), chdir: DIRECTORY)
    end

    def ready
      @url = await_line(/Listening on (http:\S+)$/, within: 60)[1]
      await("both workers of #{self}", within: 60) { workers.size == 2 }
      self
    end

    # Process ids of the workers that serve in this phase, which is the number of phased restarts so
    # far.
    def workers(phase = 0)
      out.scan(BOOTED).filter_map { |_, worker, of| Integer(worker) if of == phase.to_s }
    end

    private

    def library = LIBRARY
    def loop_command = [RbConfig.ruby, File.join(DIRECTORY, "load.rb")]
  end
end
