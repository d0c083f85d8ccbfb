# frozen_string_literal: true

require "spec_helper"
require "probescope/otel/process_context"
require "probescope/otel/resource"
require "ruby/support/opentelemetry"

# The data that an application publishes for tools outside, read from outside.
RSpec.describe "Probescope::OpenTelemetry.install" do
  app = <<~RUBY
    require "opentelemetry-sdk"
    require "probescope/opentelemetry"
    ENV["OTEL_TRACES_EXPORTER"] = "none"
    attributes = {"service.name" => "shop", "n" => 3, "list" => %w[a b]}
    OpenTelemetry::SDK.configure do |c|
      c.resource = OpenTelemetry::SDK::Resources::Resource.create(attributes)
    end
    p Probescope::OpenTelemetry.install
    $stdout.sync = true
    child = fork { sleep }
    puts "ready", "child \#{child}"
    sleep
  RUBY

  it "publishes the resource, also in forked children" do
    options = ["-I#{File.join(Support::ROOT, "lib")}", *OpenTelemetryGems.options]
    process = target(app, loaded: false, options: options).ready
    child = process.await_line(/^child (\d+)/)[1].to_i
    expect(process.out).to start_with("true\n")
    [process.pid, child].each do |pid|
      payload = await("the context of #{pid}") { Probescope::Otel::ProcessContext.read(pid) }
      message = {attributes: {"process.pid": pid}, published: payload.unpack1("H*")}
      expect(Probescope::Otel::Resource.of(message, nil).attribute_enumerator.to_h)
        .to include("service.name" => "shop", "n" => 3, "list" => %w[a b], "process.pid" => pid)
    end
  end
end

RSpec.describe "the current span of each thread, read from outside" do
  source = File.join(Support::ROOT, "spec/support/thread_record.c")
  reader = File.join(Support::ROOT, "tmp/thread_record")
  before(:context) do
    skip "the reader is for x86-64" unless RbConfig::CONFIG["host_cpu"] == "x86_64"
    out, status = Open3.capture2e("cc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", reader, source)
    raise out unless status.success?
  end

  # Each line has the step, the thread, and "trace_id span_id flags" of the thread's current span,
  # or "none". The program waits for an order after each step.
  ruby = <<~RUBY
    require "opentelemetry-sdk"
    require "probescope/opentelemetry"
    ENV["OTEL_TRACES_EXPORTER"] = "none"
    OpenTelemetry::SDK.configure
    Probescope::OpenTelemetry.install
    $stdout.sync = true
    def at(name)
      context = OpenTelemetry::Trace.current_span.context
      said = context.valid? ? "\#{context.hex_trace_id} \#{context.hex_span_id} 01" : "none"
      puts "at \#{name} \#{Thread.current.native_thread_id} \#{said}"
      $stdin.gets
    end
    T = OpenTelemetry.tracer_provider.tracer("spec")
    at("start")
    T.in_span("outer") do
      at("outer")
      T.in_span("inner") { at("inner") }
      at("outer_again")
      fiber = Fiber.new do
        at("bare_fiber")
        T.in_span("fiber") { at("fiber"); Fiber.yield; at("fiber_again") }
      end
      fiber.resume
      at("beside_fiber")
      fiber.resume
      Thread.new { at("bare_thread"); T.in_span("thread") { at("thread") } }.join
    end
    at("end")
  RUBY

  it "is the current span of Ruby's fibers and threads" do
    options = ["-I#{File.join(Support::ROOT, "lib")}", *OpenTelemetryGems.options]
    process = target(ruby, loaded: false, stdin: true, options: options)
    seen = Array.new(10) { |i| step(process, i, reader, Support::LIBRARY) }
    expect(seen.map { |name, outside, inside| [name, outside] if outside != inside }.compact).to eq([])
    expect(seen.map(&:last).uniq.size).to eq(5)
  end

  # [step, span as read from outside, span as the application prints it]
  def step(process, number, reader, library)
    name, thread, inside = await("step #{number}") do
      process.out.lines.select do |line|
        line.start_with?("at ") && line.end_with?("\n")
      end[number]
    end
                           .split(" ", 4)[1..]
    outside, = Open3.capture2(reader, process.pid.to_s, thread, library)
    process.puts("on")
    [name, outside.chomp, inside.chomp]
  end
end

RSpec.describe Probescope::Otel::Resource do
  resource = Opentelemetry::Proto::Resource::V1::Resource
  common = Opentelemetry::Proto::Common::V1

  # Encodes a ProcessContext with these attributes. Each value is a Hash for AnyValue.
  define_method(:context) do |attributes|
    pairs = attributes.map do |key, value|
      common::KeyValue.new(key: key, value: common::AnyValue.new(**value))
    end
    bytes = resource.encode(resource.new(attributes: pairs))
    ([10, *varint(bytes.bytesize)].pack("C*") + bytes).unpack1("H*")
  end

  def varint(number) = number < 128 ? [number] : [(number & 127) | 128, *varint(number >> 7)]

  def found(message, *arguments)
    described_class.of({attributes: {"process.pid": 7}, executable: "ruby", **message}, *arguments)
                   .attribute_enumerator.to_h
  end

  it "reads a malformed context as empty" do
    ["", "0a", "0aff", "ffffffffffffffffffff", "0a050a0312ff00", "1205aabbccddee",
     "ff" * 65_536].each do |digits|
      expect(described_class.published(digits)).to eq({})
    end
  end

  it "accepts lists of one kind, and no others" do
    list = lambda do |*values|
      {array_value: common::ArrayValue.new(values: values.map { |value| common::AnyValue.new(**value) })}
    end
    lists = {"texts" => [{string_value: "a"}, {string_value: "b"}],
             "mixed" => [{string_value: "a"}, {int_value: 1}], "empty" => [], "nothing" => [{}],
             "lists" => [list.call({int_value: 1})]}
    digits = context({**lists.transform_values { |values| list.call(*values) }, "number" => {int_value: 3}})
    expect(described_class.published(digits)).to eq("texts" => %w[a b], "number" => 3)
  end

  it "sends a process's claims under other names than the kernel's values" do
    claims = {"process.pid" => "1", "host.name" => "db1", "team" => "z"}
    digits = context("container.id" => {string_value: "f" * 64}, "host.name" => {string_value: "db2"},
                     "probescope.process" => {string_value: "1"})
    expect(found({claims: claims, published: digits}, nil, {"team" => "y", "site" => "x"}))
      .to eq("service.name" => "unknown_service:ruby", "process.pid" => 7, "team" => "z", "site" => "x",
             "probescope.claimed.process.pid" => "1", "probescope.claimed.host.name" => "db2",
             "probescope.claimed.container.id" => "f" * 64, "probescope.claimed.probescope.process" => "1")
  end

  it "cleans and bounds the claims" do
    claims = {"evil\e[31m" => "a\nb", "k" * 1000 => "v" * 10_000, "" => "nobody",
              **(1..1000).to_h { |i| ["n#{i}", i] }}
    attributes = found({claims: claims, service_name: "shop\u202e"}, nil)
    expect(attributes)
      .to include('evil\e[31m' => 'a\nb', "k" * 255 => "v" * 4096, "service.name" => 'shop\u202e')
    expect(attributes.size).to be_between(120, 130)
  end
end
