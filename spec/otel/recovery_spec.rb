# frozen_string_literal: true

require "spec_helper"
require "support/otlp_server"
require "support/process_trees"

# A process and its figures after a bridge was killed.
RSpec.describe "probescope otel after its death", :bpf do
  # Makes as many slow calls as a line on stdin orders.
  app = <<~RUBY
    require "io/wait"
    $stdout.sync = true
    eval(<<~WORK, TOPLEVEL_BINDING, #{File.join(Support::ROOT, "spec/otel/work.rb").inspect}, 1)
      def slow = sleep(0.002)
    WORK
    puts "ready"
    loop do
      sleep 0.01 until $stdin.wait_readable(0)
      Integer($stdin.gets).times { slow }
      puts "done"
    end
  RUBY
  probes = %w[function__slow1ms function__stats]

  let(:server) { keep(Support::OtlpServer.new) }
  let(:process) { target(app, stdin: true).ready }

  def alive?(pid) = File.exist?("/proc/#{pid}") && !File.read("/proc/#{pid}/stat").match?(/\) Z /)

  # Metrics count from the first flush on.
  define_method(:bridge) do
    flushes = process.info.header[:flushes]
    child = probescope_start("otel", "-p", process.pid, "--slow", "1ms", "--exceptions", "none", "--metrics",
                             "--endpoint", server.endpoint, env: {"OTEL_METRIC_EXPORT_INTERVAL" => "300"})
    child.await_line(/attached to/, stream: :err)
    process.await_on(*probes)
    await("the first flush") { process.info.header[:flushes] > flushes }
    child
  end

  def work(calls)
    before = process.out.scan("done").size
    process.puts(calls)
    await("#{calls} calls") { process.out.scan("done").size > before }
  end

  # Returns the points of the function's calls, in the order of arrival.
  def points
    server.metrics.select { |_, metric| metric.name == "probescope.function.calls" }
          .flat_map { |resource, metric| metric.sum.data_points.map { |point| [resource, point] } }
  end

  # GIVEN a bridge that is killed, THEN its parts end and the hooks come out; WHEN a new bridge is
  # started, THEN it traces the process under the same names, and its figures have a new start time.
  it "leaves the process to the next bridge, whose figures have a new start" do
    first = bridge
    parts = children_of(first.pid)
    work(20)
    await("figures of 20") { points.any? && points.last.last.as_int == 20 }
    first.signal(:KILL)
    process.await_off(*probes)
    await("the end of bpftrace and of the exporter") { parts.none? { |pid| alive?(pid) } }
    work(7)
    expect(server.span_ids.size).to eq(20)

    second = bridge
    work(5)
    await("figures of 5") { points.last.last.as_int == 5 }
    expect(second.stop(within: 60)).to be_success
    process.await_off(*probes)

    expect(server.span_ids.size).to eq(25)
    expect(
      points.map { |resource, point| [resource, Support::OtlpServer.attributes(point.attributes)] }.uniq.size
    ).to eq(1)
    runs = points.map(&:last).slice_when do |one, other|
      one.start_time_unix_nano < other.start_time_unix_nano
    end
    before, after = runs.to_a
    expect(
      [before, after].map { |of_one| [of_one.map(&:start_time_unix_nano).uniq.size, of_one.last.as_int] }
    ).to eq([[1, 20], [1, 5]])
    expect(points.map { |_, point| point.time_unix_nano })
      .to eq(points.map { |_, point| point.time_unix_nano }.sort)
    expect(after.first.start_time_unix_nano).to be > before.last.time_unix_nano
  end
end
