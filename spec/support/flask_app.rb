# frozen_string_literal: true

require_relative "web_app"

module Support
  # Runs examples/flask_app as in production: gunicorn with two workers, in its own process group.
  class FlaskApp < WebApp
    DIRECTORY = File.join(ROOT, "examples/flask_app")
    # The virtualenvs in which bin/setup installs its packages, one for each version of Python.
    PACKAGES = File.join(ROOT, "vendor/python")

    def self.gunicorn = File.join(PACKAGES, Python.full_version, "bin/gunicorn")
    # The interpreter with these packages.
    def self.python = File.join(PACKAGES, Python.full_version, "bin/python")

    # For `before`. Without the packages the example fails in CI, and is skipped elsewhere.
    def self.require!
      return if File.executable?(gunicorn)

      missing = "the packages of examples/flask_app are missing: bin/setup specs installs them"
      raise missing if ENV["CI"]

      yield missing
    end

    # env: the switches of its README, such as "FIXED" => "parser".
    def initialize(env: {})
      super(self.class.gunicorn,
            env: Support.plain_env.merge("PORT" => "0", "PYTHONPATH" => Python::PACKAGE, **env),
            chdir: DIRECTORY)
    end

    def ready
      @url = await_line(/Listening at: (http:\S+) /, within: 60, stream: :err)[1]
      await("both workers of #{self}", within: 60) do
        workers.size == 2 && workers.all? { |pid| File.exist?("/proc/#{pid}") }
      end
      await("an answer of #{self}", within: 60) { get("/").code == "200" }
      self
    end

    # Process ids of the two newest workers.
    def workers = err.scan(/Booting worker with pid: (\d+)$/).flatten.last(2).map(&:to_i)

    private

    def library = Python.library
    def loop_command = [Python.interpreter, File.join(DIRECTORY, "load.py")]
  end
end
