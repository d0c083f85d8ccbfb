# frozen_string_literal: true

require "json"
require "net/http"
require "socket"

module Support
  # A real Prometheus for metrics. Debian builds it without the OTLP receiver. So vmagent, from
  # Debian's victoria-metrics, receives OTLP and forwards it by remote write, under Prometheus's
  # names. The programs are PROMETHEUS=/path and VMAGENT=/path, or those on PATH, or those that
  # bin/setup backends fetches. Without them the examples are skipped, or fail if
  # PROBESCOPE_BACKENDS requires them.
  class Prometheus < Child
    FETCHED = File.join(ROOT, "tmp/backends/usr/bin")

    def self.find(variable, name)
      folders = [*ENV["PATH"].split(":"), FETCHED]
      [ENV[variable], *folders.map { |folder| File.join(folder, name) }].compact.find do |path|
        File.executable?(path)
      end
    end

    def self.prometheus = find("PROMETHEUS", "prometheus")
    def self.vmagent = find("VMAGENT", "vmagent")

    def self.require!
      return if prometheus && vmagent

      reason = "of .ci/full: needs prometheus and vmagent (PROMETHEUS=/path VMAGENT=/path, " \
               "or on Debian 13 bin/setup backends)"
      raise reason if ENV["PROBESCOPE_BACKENDS"]

      yield reason
    end

    def initialize
      @folder = Dir.mktmpdir
      @port, @otlp = free_ports
      File.write(File.join(@folder, "prometheus.yml"), "")
      super(Prometheus.prometheus, "--web.enable-remote-write-receiver", "--config.file=prometheus.yml",
            "--storage.tsdb.path=data", "--web.listen-address=127.0.0.1:#{@port}", "--log.level=warn",
            chdir: @folder)
      @vmagent = Child.new(Prometheus.vmagent, "-remoteWrite.url=http://127.0.0.1:#{@port}/api/v1/write",
                           "-remoteWrite.flushInterval=200ms", "-remoteWrite.tmpDataPath=queue",
                           "-opentelemetry.usePrometheusNaming", "-loggerLevel=WARN",
                           "-httpListenAddr=127.0.0.1:#{@otlp}", chdir: @folder)
      await("Prometheus", within: 60) { ready?(@port, "-/ready") && ready?(@otlp, "health") }
    end

    # The value of OTEL_EXPORTER_OTLP_METRICS_ENDPOINT.
    def endpoint = "http://127.0.0.1:#{@otlp}/opentelemetry/v1/metrics"

    # Returns the present {labels => value}.
    def query(expression)
      found = answer("query?query=#{URI.encode_www_form_component(expression)}").fetch("data").fetch("result")
      found.to_h { |one| [one["metric"], Float(one["value"].last)] }
    end

    # Warnings and errors of both programs.
    def complaints = "#{err}#{@vmagent.err}"
    def state = "#{super}#{@vmagent.state}"

    def kill_all
      super
      @vmagent.kill_all
      FileUtils.rm_rf(@folder)
    end

    private

    # Other processes might take these ports before Prometheus does, but rarely.
    def free_ports
      servers = Array.new(2) { TCPServer.new("127.0.0.1", 0) }
      servers.map { |server| server.addr[1] }
    ensure
      servers&.each(&:close)
    end

    def answer(path) = JSON.parse(Net::HTTP.get(URI("http://127.0.0.1:#{@port}/api/v1/#{path}")))

    def ready?(port, path)
      Net::HTTP.get_response(URI("http://127.0.0.1:#{port}/#{path}")).is_a?(Net::HTTPOK)
    rescue SystemCallError, EOFError
      false
    end
  end
end
