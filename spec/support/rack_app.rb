# frozen_string_literal: true

require "net/http"

module Support
  # Runs examples/rack_app as in production: Puma with two workers, in its own process group.
  class RackApp < Child
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

    # The URL on which it listens, when it is ready.
    attr_reader :url

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

    # CPU seconds of all threads of the workers so far. Clock ticks are too coarse for one turn of a
    # benchmark.
    def workers_cpu
      ns = workers.sum do |pid|
        Dir["/proc/#{pid}/task/*/schedstat"].sum { |path| File.read(path).split.first.to_i }
      end
      ns / 1e9
    end

    def get(path) = Net::HTTP.get_response(URI("#{@url}#{path}"))

    def post(path, body, type = "text/plain")
      Net::HTTP.post(URI("#{@url}#{path}"), body, "Content-Type" => type)
    end

    # Starts the load loop with its own options. It ends by itself, or with #stop(:INT). Its last
    # line is JSON with its counts.
    def load(seconds: 120, **options)
      options = options.flat_map { |name, value| ["--#{name}", value.to_s] }
      Child.new(RbConfig.ruby, File.join(DIRECTORY, "load.rb"), "--url", @url, "--seconds", seconds.to_s,
                *options, "--json")
    end

    # probescope_info of one of its processes.
    def info(of = workers.first)
      await("the library in process #{of}") { Info.of(of) }
    end
  end
end
