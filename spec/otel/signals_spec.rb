# frozen_string_literal: true

require "spec_helper"
require "support/otlp_server"

# What a bridge sends of a process besides spans, compared with the process's own counts.
RSpec.describe "probescope otel", :bpf do
  program = <<~'RUBY'
    $stdout.sync = true
    eval(<<~'WORK', TOPLEVEL_BINDING, ENV.fetch("WORK_FILE"), 1)
      class Costly < StandardError; end
      class Cheap < StandardError; end
      HOSTILE = "bad\e[31m\u202e\"'\n{}%s"
      define_method(HOSTILE) { raise Cheap }
      def deep(n) = n.zero? ? raise(Costly, "secret of #{Process.pid}") : deep(n - 1)
      def costly = (deep(1000) rescue $counts[:costly] += 1)
      def cheap = (raise(Cheap, "secret") rescue $counts[:cheap] += 1)
      def round = (3.times { costly }; cheap; (send(HOSTILE) rescue 1) if ENV["HOSTILE"]; GC.start if ($counts[:rounds] += 1) % 10 == 1)
    WORK
    $counts = Hash.new(0)
    counting = false
    trap("USR1") { counting = true }
    trap("USR2") { $stop = true }
    puts "ready"
    sleep 0.01 until counting
    until $stop
      round
      sleep 0.01
    end
    sleep 1.2
    puts "counts #{$counts[:rounds]} #{$counts[:costly]} #{$counts[:cheap]}"
    sleep
  RUBY

  let(:app) { program }
  let(:server) { keep(Support::OtlpServer.new) }

  # Starts both. The program works for at least this many seconds of its statistics. Returns
  # [rounds, costly, cheap].
  def run(*arguments, env: {})
    process = target(app, env: {"WORK_FILE" => File.join(Support::ROOT, "spec/otel/work.rb"), **env}).ready
    bridge = probescope_start("otel", "-p", process.pid, "--endpoint", server.endpoint, *arguments, env: env)
    bridge.await_line(/attached to/, stream: :err)
    process.await_on("exception__stats")
    process.await_on("function__stats") if arguments.include?("--metrics")
    flushes = process.info.header[:flushes]
    await("a flush") { process.info.header[:flushes] > flushes }
    process.signal(:USR1)
    await("three flushes") { process.info.header[:flushes] > flushes + 3 }
    process.signal(:USR2)
    counts = process.await_line(/^counts (.*)$/)[1].split.map(&:to_i)
    expect(bridge.stop(within: 60)).to be_success
    @report = JSON.parse(bridge.err.lines.grep(/received/).last[/\{.*/], symbolize_names: true)
    counts
  end

  def attributes(item) = Support::OtlpServer.attributes(item.attributes)

  # Returns {name => {attributes => value}} in the last export.
  def metrics
    server.metrics.to_h do |_, metric|
      data = metric.public_send(metric.data)
      [metric.name, data.data_points.to_h { |point| [attributes(point), point.public_send(point.value)] }]
    end
  end

  # Returns {name => [unit, kind]}.
  def kinds
    server.metrics.to_h do |_, metric|
      sum = metric.sum
      kind = [metric.data, ("rising" if sum&.is_monotonic), sum&.aggregation_temporality].compact
      words = kind.map { |word| word.to_s.delete_prefix("AGGREGATION_TEMPORALITY_").downcase }
      [metric.name, [metric.unit, *words].join(" ")]
    end
  end

  it "sends the costly exceptions as log records, without their messages" do
    run
    records = server.records.map { |_, record| attributes(record) }
    expect(records.map { |record| record["exception.type"] }.uniq).to eq(["Costly"])
    expect(records.first).to include("code.file.path" => end_with("spec/otel/work.rb"),
                                     "code.line.number" => 5, "code.function.name" => "Object#deep",
                                     "probescope.exception.depth" => be > 1000)
    expect(records.to_s).not_to include("secret")
    expect(server.records.first.last.time_unix_nano)
      .to be_within(60_000_000_000).of(Time.now.to_i * 1_000_000_000)
  end

  it "sends all exceptions with their messages if its options say so" do
    run("--exceptions", "all", "--messages")
    messages = server.records.map do |_, record|
      attributes(record).values_at("exception.type", "exception.message")
    end
    expect(messages.uniq).to contain_exactly(["Costly", /\Asecret of \d+\z/], %w[Cheap secret])
  end

  it "sends the process's own figures" do
    rounds, costly, cheap = run("--exceptions", "none", "--metrics",
                                env: {"OTEL_METRIC_EXPORT_INTERVAL" => "1000"})
    found = metrics
    expect(server.records).to be_empty
    calls = found.fetch("probescope.function.calls").transform_keys { |point| point["code.function.name"] }
    expect(calls.values_at("Object#round", "Object#costly", "Object#cheap", "Object#deep"))
      .to eq([rounds, costly, cheap, costly * 1001])
    raised = found.fetch("probescope.exceptions").transform_keys { |point| point["exception.type"] }
    expect(raised.values_at("Costly", "Cheap")).to eq([costly, cheap])
    own = kinds.select { |name, _| name.match?(/\Aprobescope\.(?!bridge)/) }
    expect(own).to eq(
      "probescope.function.calls" => "{call} sum rising cumulative",
      "probescope.function.time" => "s sum rising cumulative",
      "probescope.function.time.self" => "s sum rising cumulative",
      "probescope.function.time.max" => "s gauge",
      "probescope.exceptions" => "{exception} sum rising cumulative",
      "probescope.exception.backtrace.time" => "s sum rising cumulative",
      "probescope.allocations" => "{object} sum rising cumulative",
      "probescope.allocation.bytes" => "By sum rising cumulative",
      "probescope.gc.collections" => "{collection} sum rising cumulative",
      "probescope.gc.time" => "s sum rising cumulative"
    )
    expect(found.slice(*own.keys).values.map { |points| points.values.sum }).to all(be_positive)
    major = found.fetch("probescope.gc.collections").select do |point, _|
      point["probescope.gc.kind"] == "major"
    end
    expect(major.values.sum).to be >= rounds / 10
  end

  # GIVEN more functions than attribute sets that a metric may have, THEN the calls of the rest are
  # under otel.metric.overflow, and none is lost.
  it "keeps the number of attribute sets bounded" do
    many = <<~'RUBY'
      $stdout.sync = true
      COUNT = 2200
      eval("class Many\n" + Array.new(COUNT) { |i| "def f#{i} = nil\n" }.join + "end", TOPLEVEL_BINDING,
           ENV.fetch("WORK_FILE"), 1)
      many = Many.new
      go = false
      trap("USR1") { go = true }
      puts "ready"
      sleep 0.01 until go
      3.times { COUNT.times { |i| many.public_send("f#{i}") } }
      puts "called"
      loop { sleep 0.01 }
    RUBY
    process = target(many, env: {"WORK_FILE" => File.join(Support::ROOT, "spec/otel/work.rb")}).ready
    bridge = probescope_start("otel", "-p", process.pid, "--endpoint", server.endpoint,
                              "--exceptions", "none", "--metrics",
                              env: {"OTEL_METRIC_EXPORT_INTERVAL" => "500"})
    bridge.await_line(/attached to/, stream: :err)
    process.await_on("function__stats")
    process.signal(:USR1)
    process.await_line(/^called$/)
    # At its end the bridge reads bpftrace for a limited time.
    await("all calls at the backend", within: 60) do
      metrics.fetch("probescope.function.calls", {}).values.sum == 6600
    end
    expect(bridge.stop(within: 60)).to be_success
    calls = metrics.fetch("probescope.function.calls")
    rest = calls.select { |point, _| point["otel.metric.overflow"] }
    expect([calls.size, rest.size, calls.values.sum]).to eq([2000, 1, 6600]), bridge.err
    expect(rest.keys.first.keys).to contain_exactly("otel.metric.overflow", "probescope.process")
  end

  # GIVEN names with control characters or markup, THEN the names arrive with these characters
  # escaped.
  it "sends the process's own service name, and only plain text" do
    run("--exceptions", "all", env: {"HOSTILE" => "1"})
    resource = server.records.first.first
    expect(resource)
      .to include("service.name" => "unknown_service:#{File.basename(File.realpath(RbConfig.ruby))}",
                  "process.runtime.name" => "ruby", "process.pid" => be > 0,
                  "process.executable.path" => File.realpath(RbConfig.ruby))
    expect(resource).not_to have_key("service.instance.id")
    names = server.records.map { |_, record| attributes(record)["code.function.name"] }.uniq
    expect(names).to include(%q(Object#bad\e[31m\u202e"'\n{}%s))
    expect(names.join).not_to match(/[[:cntrl:]\u202e]/)
  end

  it "refuses a service name with control characters" do
    result = probescope("otel", "-p", "1", "--service-name", "shop\e[31m")
    expect(result.err).to match(/service name.*control/)
    expect(result.status.exitstatus).to eq(2)
  end
end
