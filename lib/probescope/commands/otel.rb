# frozen_string_literal: true

require "shellwords"
require_relative "base"
require_relative "process_options"
require_relative "../tracing/bpftrace"
require_relative "../tracing/kernel"
require_relative "../tracing/order"
require_relative "../tracing/privilege"
require_relative "../tracing/program"
require_relative "../otel/endpoints"
require_relative "../otel/installed_gems"
require_relative "../otel/nobody"
require_relative "../otel/program"
require_relative "../otel/resources"
require_relative "../otel/supervisor"
require_relative "../otel/transport"

module Probescope
  module Commands
    # The bridge to OpenTelemetry.
    class Otel < Base
      include ProcessOptions

      EXCEPTIONS = %w[costly all none].freeze
      KEYS = 16_384
      PAGES = 256
      # The longest name, and a little more, which bpftrace needs.
      STRINGS = 200
      LONGEST_URL = 4096
      ENDPOINT_FILE = "--endpoint @/etc/probescope/endpoint"
      USAGE = "otel -p PID... | --comm NAME [options]"
      ABOUT = <<~TEXT
        Sends slow calls, requests and exceptions of running processes to an OpenTelemetry backend, over
        OTLP/HTTP, until Ctrl-C or TERM. Slow calls become spans. A span is part of the trace that the
        application itself sends, otherwise of its request or job; requests and jobs are sent too where the
        application has no OpenTelemetry. Costly exceptions become log records. --metrics also sends the
        figures of functions, exceptions, allocations and the garbage collector.

        The variables OTEL_EXPORTER_OTLP_* apply: endpoints, headers, compression, timeouts (ms),
        certificates. OTEL_SERVICE_NAME names the processes. OTEL_RESOURCE_ATTRIBUTES are added to their
        own. OTEL_METRIC_EXPORT_INTERVAL (ms) is the time between two exports of figures. Each minute, the
        numbers of received, exported and dropped items are logged. With --metrics they are also sent, as
        the service probescope-otel.
      TEXT
      EXAMPLES = <<~TEXT
        probescope otel -p 4711                                     slow calls and costly exceptions of one process
        probescope otel --comm puma --workers --slow 50ms           of a server's workers, also later ones
        probescope otel --comm gunicorn --metrics --endpoint http://collector:4318
        OTEL_EXPORTER_OTLP_HEADERS=authorization=Basic%20YTpi probescope otel -p 4711 --endpoint https://otlp.example.org
      TEXT

      def initialize
        super
        @slow = Tracing::Program::SLOW
        @exceptions = "costly"
      end

      def run(argv)
        @argv = argv.dup
        super
      end

      private

      def options(parser)
        process_options(parser, comm: "the processes of that name, also later ones")
        parser.on("--slow TIME", "the shortest call to send, 10ms by default, 1ms at least") do |text|
          @slow = slow(text, "--slow", "--slow 1ms")
        end
        parser.on("--exceptions WHICH",
                  "costly: those from the lines that make up 90 % of the backtraces' cost (default); " \
                  "all; none") do |which|
          @exceptions = exceptions(which)
        end
        parser.on("--messages", "exceptions with their messages, which may contain private data") do
          @messages = true
        end
        parser.on("--metrics", "figures of all functions, exceptions, allocations and collections too") do
          @metrics = true
        end
        parser.on("--endpoint URL",
                  "the backend, #{Probescope::Otel::Endpoints::DEFAULT} by default; " \
                  "@FILE: the URL is in that file") do |url|
          @endpoint = endpoint(url)
        end
        parser.on("--service-name NAME",
                  "service.name of all processes, instead of their own") do |name|
          if name.match?(/[[:cntrl:]]/)
            raise CLI::Usage.new("a service name has no control characters", "--service-name shop")
          end

          @service_name = some(name, "--service-name shop")
        end
      end

      def some(text, example)
        raise CLI::Usage.new("a name is missing", example) if text.strip.empty?

        text
      end

      def exceptions(which)
        return which if EXCEPTIONS.include?(which)

        raise CLI::Usage.new("#{which.inspect} is none of #{EXCEPTIONS.join(", ")}",
                             "--exceptions #{EXCEPTIONS.first}")
      end

      # `ps` shows the arguments of a process to every user.
      def endpoint(text)
        return url_in(text.delete_prefix("@")) if text.start_with?("@")
        return text unless Probescope::Otel::Endpoints.credentials(text)

        raise CLI::Usage.new("everybody on this machine can read the password in --endpoint, as in `ps`",
                             "write the URL into a file that nobody else may read: --endpoint @FILE; " \
                             "or OTEL_EXPORTER_OTLP_ENDPOINT")
      end

      # Error messages never quote the file. sudo may let a user run this command who may not read
      # every file.
      def url_in(path)
        File.open(path, File::RDONLY | File::NONBLOCK) do |file|
          open = file.stat.mode.anybits?(0o007)
          url = file.gets("\n", LONGEST_URL).to_s.strip
          unless url?(url)
            raise CLI::Usage.new("the first line of #{path} is no URL of an OTLP/HTTP endpoint",
                                 ENDPOINT_FILE)
          end

          return url unless open && Probescope::Otel::Endpoints.credentials(url)

          raise CLI::Usage.new("everybody on this machine can read the password in #{path}",
                               "chmod o= #{path}")
        end
      rescue SystemCallError => e
        raise CLI::Usage.new("--endpoint @#{path} cannot be read: #{e.message}", ENDPOINT_FILE)
      end

      def url?(text)
        Probescope::Otel::Endpoints.new(text, {})
      rescue CLI::Usage
        nil
      end

      def call
        some(@comm, "--comm puma") if @comm
        check_chosen("-p PID or --comm NAME")
        check_environment
        @gems = Probescope::Otel::InstalledGems.find
        Tracing::Kernel.new.check
        bpftrace = Tracing::Bpftrace.find
        Tracing::Privilege.new.check(bpftrace, "probescope otel #{Shellwords.join(@argv)}")
        supervise(bpftrace.numbers == :thread ? "tid" : "pid")
      end

      def check_environment
        Probescope::Otel::Endpoints.new(@endpoint)
        Probescope::Otel::Endpoints::SIGNALS.each { |signal| Probescope::Otel::Transport.new(signal) }
        Probescope::Otel::Transport.metric_interval
      end

      # number: bpftrace's builtin for the number of a process, "pid" or "tid".
      def supervise(number)
        program = Probescope::Otel::Program.new(slow: @slow, exceptions: @exceptions != "none",
                                                metrics: @metrics, messages: @messages, number: number)
        order = Tracing::Order.of(**chosen, keys: KEYS, pages: PAGES, strings: STRINGS)
        supervisor = Probescope::Otel::Supervisor.new(order, program, method(:start_exporter), method(:say))
        supervisor.check
        %w[INT TERM].each { |name| trap(name) { supervisor.stop } }
        trap("HUP", "IGNORE")
        supervisor.run
      end

      # Returns the pid of a child that reads `input`. The child runs as nobody. Where its gems are
      # a user's, it runs as that user.
      def start_exporter(input)
        Process.fork do
          %w[INT TERM HUP].each { |name| trap(name, "IGNORE") }
          Probescope::Otel::Nobody.become([input], @gems.user) if @gems.user
          @gems.use
          require_relative "../otel/exporter"
          options = {endpoint: @endpoint, exceptions: @exceptions, metrics: @metrics,
                     **names(Probescope::Otel::Resources.own)}
          exporter = Probescope::Otel::Exporter.new(input, options)
          Probescope::Otel::Nobody.become([input]) unless @gems.user
          exporter.run
          exit!(0)
        rescue LoadError => e
          say("the exporter cannot load its gems: #{e.message}")
          exit!(1)
        rescue StandardError => e
          # The exception's message may hold data of the application.
          say("the exporter failed: #{e.class} at #{e.backtrace.first}")
          exit!(1)
        end
      end

      # own: attributes from the bridge's environment. They apply to every process, unless the
      # process itself sets the same attribute.
      def names(own)
        {service_name: @service_name || own["service.name"],
         attributes: own.reject { |name, _| name == "service.name" }}
      end

      def say(text) = warn("probescope otel: #{Tracing::Text.clean(text)}")
    end
  end
end
