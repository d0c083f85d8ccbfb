# frozen_string_literal: true

require "spec_helper"
require "support/process_trees"

# Processes that fire more events than can be read.
RSpec.describe "probescope otel and a flood of events", :bpf do
  app = <<~RUBY
    app = Probescope::Rack.new(->(_) { [200, {}, []] })
    request = {"REQUEST_METHOD" => "GET", "PATH_INFO" => "/", "rack.url_scheme" => "http",
               "HTTP_TRACEPARENT" => "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    puts "ready"
    $stdout.flush
    loop { app.call(request.dup)[2].then { |body| body.close if body.respond_to?(:close) } }
  RUBY

  it "ends in time, reports what it did and what it lost, and leaves no bpftrace behind" do
    processes = Array.new(4) { target(app).ready }
    options = processes.flat_map { |process| ["-p", process.pid] }
    bridge = probescope_start("otel", *options, "--exceptions", "none", "--endpoint", "http://127.0.0.1:9")
    bridge.await_line(/attached to 4/, stream: :err, within: 60)
    tracers = children_of(bridge.pid).select { |pid| File.read("/proc/#{pid}/comm").start_with?("bpftrace") }
    starts = processes.map { |process| process.info.header[:flushes] }
    await("3 s of it", within: 60) do
      processes.zip(starts).all? { |process, start| process.info.header[:flushes] >= start + 3 }
    end
    expect(bridge.stop(:INT, within: 15)).to be_success, bridge.to_s
    report = JSON.parse(bridge.err.lines.grep(/"received"/).last[/\{.*/])
    expect(report["received"]["requests"]).to be > 1000
    expect(report.values_at("dropped_unread", "lost_events",
                            "lost_by_the_kernel").sum + report["traces"]["dropped"].values.sum).to be > 1000
    expect(tracers.size).to eq(1)
    await("the end of bpftrace") do
      !File.exist?("/proc/#{tracers.first}") || File.read("/proc/#{tracers.first}/stat").match?(/\) Z /)
    end
  end
end
