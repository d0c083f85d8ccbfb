# frozen_string_literal: true

require "spec_helper"
require "probescope/otel/process_context"
require "probescope/otel/resource"
require "ruby/support/opentelemetry"

# What an application publishes for tools outside of it, read from outside.
RSpec.describe "Probescope::OpenTelemetry.install" do
  app = <<~RUBY
    require "opentelemetry-sdk"
    require "probescope/opentelemetry"
    ENV["OTEL_TRACES_EXPORTER"] = "none"
    OpenTelemetry::SDK.configure { |c| c.resource = OpenTelemetry::SDK::Resources::Resource.create("service.name" => "shop", "n" => 3, "list" => %w[a b]) }
    p Probescope::OpenTelemetry.install
    $stdout.sync = true
    child = fork { sleep }
    puts "ready", "child \#{child}"
    sleep
  RUBY

  it "publishes the resource, in forked children too" do
    process = target(app, loaded: false, options: ["-I#{File.join(Support::ROOT, "lib")}", *OpenTelemetryGems.options]).ready
    child = process.await_line(/^child (\d+)/)[1].to_i
    expect(process.out).to start_with("true\n")
    [process.pid, child].each do |pid|
      payload = await("the context of #{pid}") { Probescope::Otel::ProcessContext.read(pid) }
      expect(Probescope::Otel::Resource.published(payload.unpack1("H*"))).to include("service.name" => "shop", "n" => 3, "list" => %w[a b])
    end
  end
end

RSpec.describe Probescope::Otel::Resource do
  it "takes what makes no sense for nothing" do
    ["", "0a", "0aff", "ffffffffffffffffffff", "0a050a0312ff00", "1205aabbccddee"].each { |digits| expect(described_class.published(digits)).to eq({}) }
  end
end
