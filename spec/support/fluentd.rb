# frozen_string_literal: true

require "json"
require "net/http"
require "socket"

module Support
  # A real fluentd that receives OTLP and writes it to a file. bin/setup backends installs it.
  # Without it the examples are skipped, or fail if PROBESCOPE_BACKENDS requires it.
  class Fluentd < Child
    DIRECTORY = File.join(ROOT, "spec/otel/fluentd")

    def self.require!
      return if Gem.ruby_version >= Gem::Version.new("3.2") &&
                system(Support.plain_env, RbConfig.ruby, "-S", "bundle", "check",
                       chdir: DIRECTORY, unsetenv_others: true, out: File::NULL, err: File::NULL)

      reason = "of .ci/full: needs fluentd with its OpenTelemetry plugin, and Ruby 3.2: bin/setup backends"
      raise reason if ENV["PROBESCOPE_BACKENDS"]

      yield reason
    end

    def initialize
      @folder = Dir.mktmpdir
      # Another process might take the port before fluentd does, but rarely.
      @port = TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }
      File.write(File.join(@folder, "fluent.conf"), configuration)
      super(RbConfig.ruby, "-S", "bundle", "exec", "fluentd", "--no-supervisor",
            "-c", File.join(@folder, "fluent.conf"), chdir: DIRECTORY)
      await("fluentd", within: 60) { listening? }
    end

    # The value of OTEL_EXPORTER_OTLP_LOGS_ENDPOINT.
    def endpoint = "http://127.0.0.1:#{@port}/v1/logs"

    # All that fluentd has written.
    def text = Dir[File.join(@folder, "out*.log")].map { |path| File.read(path) }.join

    # Returns a Hash for each log record, with the attributes of its resource.
    def records
      logs = text.lines.flat_map do |line|
        JSON.parse(JSON.parse(line).fetch("message")).fetch("resourceLogs")
      end
      logs.flat_map do |one|
        records = one.fetch("scopeLogs").flat_map { |scope| scope.fetch("logRecords") }
        records.map do |record|
          {**record, **ids(record), "resource" => pairs(one["resource"]), "attributes" => pairs(record)}
        end
      end
    end

    def kill_all
      super
      FileUtils.rm_rf(@folder)
    end

    private

    # fluentd writes bytes in the JSON encoding of Protocol Buffers, base64.
    def ids(record)
      record.slice("traceId", "spanId").transform_values { |id| id.unpack1("m").unpack1("H*") }
    end

    # {name => value}
    def pairs(message) = message.fetch("attributes").to_h { |one| [one["key"], one["value"].values.first] }

    def listening?
      TCPSocket.new("127.0.0.1", @port).close || true
    rescue SystemCallError
      false
    end

    def configuration
      <<~TEXT
        <system>
          log_level warn
        </system>
        <source>
          @type opentelemetry
          tag otlp
          <http>
            bind 127.0.0.1
            port #{@port}
          </http>
        </source>
        <match **>
          @type file
          path #{@folder}/out
          append true
          <format>
            @type json
          </format>
          <buffer []>
            flush_mode immediate
          </buffer>
        </match>
      TEXT
    end
  end
end
