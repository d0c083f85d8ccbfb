# frozen_string_literal: true

require "net/http"
require "probescope/host/descendants"

module Support
  # An application of spec/frameworks as it runs in production: a server with two workers. bin/setup
  # frameworks installs what they need; without it the examples are skipped, or fail where
  # PROBESCOPE_FRAMEWORKS says that it has to be there.
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

    # kind: :ruby or :python, the language of its processes. port: 0 where the server takes any and
    # says which.
    def initialize(kind, *command, env: {})
      @kind = kind
      @cache = Dir.mktmpdir
      own = kind == :python ? Python.env(loaded: false) : {}
      super(*command, env: Support.plain_env.merge("CACHE" => @cache, **own, **env), chdir: DIRECTORY)
    end

    # workers: processes that answer beside the first one.
    def ready(workers: 2)
      await("the address of #{self}", within: 120) { url || (raise "ended: #{self}" unless alive?) }
      await("an answer of #{self}", within: 60) { ask("/warm").code == "404" }
      await("#{workers} workers of #{self}", within: 60) { self.workers.size == workers }
      self
    end

    def url
      @url ||= (out + err)[ADDRESS, 1]&.then { |port| "http://127.0.0.1:#{port}" }
    end

    # The processes that have something that tells of requests, but for a master that has loaded the
    # application, too.
    def workers
      Probescope::Host::Descendants.of(pid).select do |pid|
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
