# frozen_string_literal: true

require "openssl"
require "spec_helper"
require "support/otlp_server"
require "probescope/otel/endpoints"
require "probescope/otel/exporters"
require "probescope/otel/resource"
require "probescope/otel/resources"
require "probescope/otel/transport"

# Each of OpenTelemetry's variables is checked by the requests that a backend gets.
RSpec.describe "The environment of probescope otel" do
  endpoints = Probescope::Otel::Endpoints
  transport = Probescope::Otel::Transport

  # A certificate authority, and its certificates for a server and for a client.
  certificates = Module.new do
    module_function

    # Returns {name => path}.
    def write(folder)
      authority = OpenSSL::PKey::EC.generate("prime256v1")
      root = certificate("/CN=authority", authority, authority, nil)
      signed = %w[server client].to_h do |name|
        key = OpenSSL::PKey::EC.generate("prime256v1")
        [name, [certificate("/CN=#{name}", key, authority, root), key]]
      end
      texts = {
        "ca" => root.to_pem,
        **signed.flat_map { |name, (one, key)| [[name, one.to_pem], ["#{name}_key", key.to_pem]] }.to_h
      }
      texts.to_h { |name, text| [name, File.join(folder, name).tap { |path| File.write(path, text) }] }
    end

    def certificate(name, key, signer, issuer)
      one = OpenSSL::X509::Certificate.new
      one.version = 2
      one.serial = rand(1 << 32)
      one.subject = OpenSSL::X509::Name.parse(name)
      one.issuer = (issuer || one).subject
      one.public_key = key
      one.not_before = Time.now - 60
      one.not_after = Time.now + 3600
      extensions = OpenSSL::X509::ExtensionFactory.new(issuer || one, one)
      one.add_extension(extensions.create_extension("basicConstraints", issuer ? "CA:FALSE" : "CA:TRUE",
                                                    true))
      one.add_extension(extensions.create_extension("subjectAltName", "IP:127.0.0.1"))
      one.sign(signer, OpenSSL::Digest.new("SHA256"))
    end

    def context(paths)
      OpenSSL::SSL::SSLContext.new.tap do |context|
        context.cert = OpenSSL::X509::Certificate.new(File.read(paths["server"]))
        context.key = OpenSSL::PKey.read(File.read(paths["server_key"]))
        context.cert_store = OpenSSL::X509::Store.new.add_file(paths["ca"])
        context.verify_mode = OpenSSL::SSL::VERIFY_PEER | OpenSSL::SSL::VERIFY_FAIL_IF_NO_PEER_CERT
      end
    end
  end

  before { OpenTelemetry.logger = Logger.new(File::NULL) }

  let(:server) { keep(Support::OtlpServer.new) }

  def with_password = server.endpoint.sub("//", "//me:p%40+s@")

  # Sends an empty request for each signal, and returns the heads of the requests.
  def sent(environment)
    endpoints = Probescope::Otel::Endpoints.new(nil, environment)
    Probescope::Otel::Endpoints::SIGNALS.each do |signal|
      transport = Probescope::Otel::Transport.new(signal, environment,
                                                  authorization: endpoints.authorization(signal))
      exporter = Probescope::Otel::Exporters::BY_SIGNAL.fetch(signal)
                                                       .new(endpoint: endpoints[signal], transport: transport)
      expect(exporter.deliver([], timeout: 5)).to be(true), exporter.reason.to_s
    end
    server.headers
  end

  # {variables => pattern for each request's head}; BASE is the server's URL.
  everything = {
    {"ENDPOINT" => "BASE"} => [%r{^POST /v1/traces }, %r{^POST /v1/logs }, %r{^POST /v1/metrics }],
    {"ENDPOINT" => "BASE/otlp/"} => [%r{^POST /otlp/v1/traces }, %r{^POST /otlp/v1/logs },
                                     %r{^POST /otlp/v1/metrics }],
    {"ENDPOINT" => "BASE", "LOGS_ENDPOINT" => "BASE/loki?a=b", "TRACES_ENDPOINT" => "BASE",
     "METRICS_ENDPOINT" => " "} =>
      [%r{^POST / }, %r{^POST /loki\?a=b }, %r{^POST /v1/metrics }],
    {"ENDPOINT" => "BASE", "HEADERS" => "authorization=Basic%20a+b%3D,x-tenant=1",
     "METRICS_HEADERS" => "x-tenant=2"} =>
      [/^authorization: Basic a\+b=\r\nx-tenant: 1\r/i, /^x-tenant: 1\r/i, /^x-tenant: 2\r/i],
    {"ENDPOINT" => "PASS", "LOGS_ENDPOINT" => "BASE", "METRICS_HEADERS" => "Authorization=Bearer%20x"} =>
      [/^authorization: Basic bWU6cEArcw==\r/i, /\A(?!.*^authorization)/im, /^authorization: Bearer x\r/i],
    {"ENDPOINT" => "BASE", "COMPRESSION" => "", "LOGS_COMPRESSION" => "none"} =>
      [/^content-encoding: gzip\r/i, /\A(?!.*^content-encoding)/im, /^content-encoding: gzip\r/i],
    {"ENDPOINT" => "BASE",
     "PROTOCOL" => "http/protobuf"} => [%r{^content-type: application/x-protobuf\r}i] * 3
  }
  everything.each do |variables, heads|
    it "is followed: #{variables}" do
      given = variables.to_h do |name, value|
        ["OTEL_EXPORTER_OTLP_#{name}", value.sub("BASE", server.endpoint).sub("PASS", with_password)]
      end
      expect(sent(given)).to match(heads.map { |head| match(head) })
    end
  end

  it "is followed if a signal's endpoint is the common one" do
    variables = %w[OTEL_EXPORTER_OTLP_ENDPOINT OTEL_EXPORTER_OTLP_LOGS_ENDPOINT
                   OTEL_EXPORTER_OTLP_METRICS_ENDPOINT]
    variables.each { |name| ENV[name] = "#{server.endpoint}/own" }
    expect(sent(ENV))
      .to match([match(%r{^POST /own/v1/traces }), match(%r{^POST /own }), match(%r{^POST /own })])
  ensure
    variables.each { |name| ENV.delete(name) }
  end

  timeouts = {{} => 10, {"TIMEOUT" => "2500"} => 2.5, {"TIMEOUT" => "3"} => 3,
              {"TIMEOUT" => "1", "TRACES_TIMEOUT" => "500"} => 0.5}
  timeouts.each do |variables, seconds|
    it "limits a request to #{seconds} s: #{variables}" do
      expect(
        transport.new("traces", variables.transform_keys { |name| "OTEL_EXPORTER_OTLP_#{name}" }).timeout
      ).to eq(seconds)
    end
  end

  wrong = {
    {"PROTOCOL" => "grpc"} => /OTEL_EXPORTER_OTLP_PROTOCOL asks for grpc; OTLP is sent as/,
    {"LOGS_PROTOCOL" => "http/json"} => %r{LOGS_PROTOCOL asks for http/json},
    {"ENDPOINT" => "localhost:4317"} => /"localhost:4317" is no URL/,
    {"ENDPOINT" => "grpc://me:secret@host"} => %r{\A(?!.*secret).*"grpc://...@host" is no URL},
    {"COMPRESSION" => "zstd"} => /COMPRESSION cannot be used: gzip or none/,
    {"TRACES_TIMEOUT" => "soon"} => /TRACES_TIMEOUT cannot be used/,
    {"TIMEOUT" => "0"} => /TIMEOUT cannot be used/,
    {"HEADERS" => "authorization"} => /HEADERS cannot be used: name=value/,
    {"HEADERS" => "a=secret%0d%0ab"} => /\A(?!.*secret).*HEADERS cannot be used/,
    {"CERTIFICATE" => "/nowhere"} => %r{CERTIFICATE cannot be used: No such file.*/nowhere},
    {"CLIENT_CERTIFICATE" => "/etc/passwd"} => /CLIENT_CERTIFICATE cannot be used/,
    {"CLIENT_KEY" => "/etc/passwd"} => /CLIENT_KEY cannot be used/
  }
  wrong.each do |variables, message|
    it "is refused if the bridge does not support it: #{variables}" do
      given = variables.transform_keys { |name| "OTEL_EXPORTER_OTLP_#{name}" }
      expect do
        endpoints.new(nil, given) && endpoints::SIGNALS.each { |signal| transport.new(signal, given) }
      end
        .to raise_error(Probescope::CLI::Usage, message)
    end
  end

  it "is refused if certificates would not be verified" do
    expect { transport.new("traces", {"OTEL_RUBY_EXPORTER_OTLP_SSL_VERIFY_NONE" => ""}) }
      .to raise_error(Probescope::CLI::Usage, /VERIFY_NONE would send to whoever answers/)
  end

  # GIVEN a password among the arguments, or in a file that everybody can read, THEN the command
  # reports it without the password.
  it "refuses passwords in places that everybody can read" do
    file = File.join(@folder = Dir.mktmpdir, "endpoint")
    File.write(file, "http://me:secret@127.0.0.1:1\n", perm: 0o644)
    ["http://me:secret@127.0.0.1:1", "@#{file}"].each do |endpoint|
      result = probescope("otel", "-p", Process.pid, "--endpoint", endpoint)
      expect(result.status.exitstatus).to eq(2)
      expect(result.err)
        .to match(/\A(?!.*secret)probescope: everybody on this machine can read the password/m)
    end
    File.chmod(0o600, file)
    expect(probescope("otel", "-p", Process.pid, "--endpoint", "@#{file}").err)
      .to include("does not have probescope")
    expect(probescope("otel", "-p", Process.pid, "--endpoint", "@/nowhere").status.exitstatus).to eq(2)
  ensure
    FileUtils.rm_rf(@folder)
  end

  # A user may be allowed only `probescope otel` by sudo. That user cannot read another file with
  # it, and cannot block it with a file.
  it "shows no content of the endpoint's file, and does not wait for it" do
    @folder = Dir.mktmpdir
    File.write(file = File.join(@folder, "shadow"), "root:$y$secret:20228:0:99999:7:::\n", perm: 0o600)
    File.mkfifo(fifo = File.join(@folder, "fifo"))
    [file, fifo, "/dev/zero"].each do |path|
      result = probescope("otel", "-p", Process.pid, "--endpoint", "@#{path}")
      expect(result.status.exitstatus).to eq(2)
      expect(result.err).to match(
        /\Aprobescope: the first line of #{path} is no URL of an OTLP.HTTP endpoint\n  try: --endpoint @/
      )
      expect(result.err).not_to include("secret")
    end
  ensure
    FileUtils.rm_rf(@folder)
  end

  it "is refused if it requires another kind of figures" do
    name = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
    expect([{}, {name => "Cumulative"}].map { |given| transport.complaint(given) }).to eq([nil, nil])
    expect(transport.complaint(name => "delta"))
      .to match(/#{name} asks for delta; figures are sent as cumulative only/)
  end

  it "stops the command before it traces anything" do
    {"OTEL_EXPORTER_OTLP_COMPRESSION" => "zip",
     "OTEL_METRIC_EXPORT_INTERVAL" => "often"}.each do |name, value|
      result = probescope("otel", "-p", Process.pid, env: {name => value})
      expect(result.err).to match(/#{name}/)
      expect(result.status.exitstatus).to eq(2)
    end
  end

  it "overrides the service names of processes, and adds attributes that they do not have" do
    own = Probescope::Otel::Resources.own(
      "OTEL_RESOURCE_ATTRIBUTES" => "service.name=a,deployment.environment.name=test%2C1",
      "OTEL_SERVICE_NAME" => "b"
    )
    expect(own).to eq("service.name" => "b", "deployment.environment.name" => "test,1")
    message = {attributes: {"process.pid": 1, "host.name": "x"}, service_name: "c", executable: "ruby",
               published: nil}
    resource = Probescope::Otel::Resource.of(message, "b", {"host.name" => "y", "team" => "z"})
                                         .attribute_enumerator.to_h
    expect(resource).to eq("service.name" => "b", "process.pid" => 1, "host.name" => "x", "team" => "z")
    expect(Probescope::Otel::Resource.of(message, nil).attribute_enumerator.to_h)
      .to include("service.name" => "c")
  end

  # GIVEN a backend that requires a client certificate, THEN the bridge sends one of the backend's
  # authority, with an elliptic-curve key.
  it "encrypts, and sends a client certificate" do
    Dir.mktmpdir do |folder|
      paths = certificates.write(folder)
      server = keep(Support::OtlpServer.new(tls: certificates.context(paths)))
      given = {"ENDPOINT" => server.endpoint, "CERTIFICATE" => paths["ca"],
               "CLIENT_CERTIFICATE" => paths["client"], "CLIENT_KEY" => paths["client_key"]}
      given = given.transform_keys { |name| "OTEL_EXPORTER_OTLP_#{name}" }
      exporter = Probescope::Otel::Exporters::Logs.new(endpoint: endpoints.new(nil, given)["logs"],
                                                       transport: transport.new("logs", given))
      paths.each_value { |path| File.unlink(path) } # read already, with privilege
      expect(exporter.deliver([], timeout: 5)).to be(true)

      stranger = Probescope::Otel::Exporters::Logs.new(endpoint: "#{server.endpoint}/v1/logs",
                                                       transport: transport.new("logs", {}))
      expect(stranger.deliver([], timeout: 5)).to be(false)
    end
  end
end
