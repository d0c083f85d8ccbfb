# frozen_string_literal: true

require "net/http"

module Support
  # An application of examples/ that serves requests with several worker processes. A subclass
  # defines #workers, #library and #loop_command, the program of its load loop.
  class WebApp < Child
    # The URL on which it listens, when it is ready.
    attr_reader :url

    def get(path) = Net::HTTP.get_response(URI("#{@url}#{path}"))

    def post(path, body, type = "text/plain")
      Net::HTTP.post(URI("#{@url}#{path}"), body, "Content-Type" => type)
    end

    # Starts the load loop with its own options. It ends by itself, or with #stop(:INT). Its last
    # line is JSON with its counts.
    def load(seconds: 120, **options)
      options = options.flat_map { |name, value| ["--#{name}", value.to_s] }
      Child.new(*loop_command, "--url", @url, "--seconds", seconds.to_s, *options, "--json")
    end

    # CPU seconds of all threads of the workers so far. Clock ticks are too coarse for one turn of a
    # benchmark.
    def workers_cpu
      ns = workers.sum do |pid|
        Dir["/proc/#{pid}/task/*/schedstat"].sum { |path| File.read(path).split.first.to_i }
      end
      ns / 1e9
    end

    # probescope_info of one of its processes.
    def info(of = workers.first)
      await("the library in process #{of}") { Info.of(of, library) }
    end
  end
end
