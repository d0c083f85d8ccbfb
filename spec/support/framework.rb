# frozen_string_literal: true

require "net/http"
require "probescope/tracing/descendants"

module Support
  # Runs an application of spec/frameworks as in production: a server with two workers. bin/setup
  # frameworks installs its packages. Without them the examples are skipped, or fail if
  # PROBESCOPE_FRAMEWORKS requires them.
  class Framework < Child
    DIRECTORY = File.join(ROOT, "spec/frameworks")
    ADDRESS = %r{(?:http|tcp)://127\.0\.0\.1:(\d+)}

    class << self
      def gems?
        return @gems if defined?(@gems)

        @gems = system(Support.plain_env, RbConfig.ruby, "-S", "bundle", "check",
                       chdir: DIRECTORY, unsetenv_others: true, out: File::NULL, err: File::NULL)
      end

      def modules?(*names)
        system(Support.plain_env, Python.interpreter, "-c", "import #{names.join(", ")}",
               unsetenv_others: true, err: File::NULL)
      end

      def require!(kind, *modules)
        return if kind == :ruby ? gems? : modules?(*modules)

        reason = "needs what bin/setup frameworks installs"
        raise reason if ENV["PROBESCOPE_FRAMEWORKS"]

        yield reason
      end
    end

    # kind: :ruby or :python, the language of its processes. port: 0 if the server chooses a port
    # and prints it.
    def initialize(kind, *command, env: {})
      @kind = kind
      @cache = Dir.mktmpdir
      own = kind == :python ? Python.env(loaded: false) : {}
      super(*command, env: Support.plain_env.merge("CACHE" => @cache, **own, **env), chdir: DIRECTORY)
    end

    # workers: number of processes that answer besides the first one.
    def ready(workers: 2)
      await("the address of #{self}", within: 120) { url || (raise "ended: #{self}" unless alive?) }
      await("an answer of #{self}", within: 60) { ask("/warm").code == "404" }
      await("#{workers} workers of #{self}", within: 60) { self.workers.size == workers }
      self
    end

    def url
      @url ||= (out + err)[ADDRESS, 1]&.then { |port| "http://127.0.0.1:#{port}" }
    end

    # Returns the processes that report requests, without a master that has also loaded the
    # application.
    def workers
      Probescope::Tracing::Descendants.of(pid).select do |pid|
        info(pid)&.then { |info| info.flags.include?(:requests) }
      end
    end

    def info(pid) = Info.of(pid, @kind == :python ? Python.library : LIBRARY)

    def ask(path, method = "Get")
      uri = URI("#{url}#{path}")
      Net::HTTP.start(uri.host, uri.port, read_timeout: 60) do |http|
        http.request(Net::HTTP.const_get(method).new(uri))
      end
    rescue SystemCallError, EOFError
      Struct.new(:code).new("none")
    end

    def kill_all
      super
      FileUtils.rm_rf(@cache)
    end
  end
end
