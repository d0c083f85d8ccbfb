# frozen_string_literal: true

require "spec_helper"
require "support/prometheus"

# Compares figures in a real Prometheus with the processes' own counts.
RSpec.describe "probescope otel and Prometheus", :bpf, :python do
  before(:context) { Support::Prometheus.require! { |reason| skip reason } }

  programs = File.join(Support::ROOT, "spec/otel/programs")
  # The last line of figures.rb and figures.py.
  let(:said) { Struct.new(:pid, :turns, :raised, :napped, :collected) }

  # Returns [Target, pid] for each process that has printed its line.
  def processes(target, count)
    await("#{count} processes of #{target}") { target.out.scan(/^process \d+\n/).size == count }
    target.out.scan(/^process (\d+)$/).flatten.map { |pid| [target, Integer(pid)] }
  end

  def bridge(*pids, endpoint)
    child = probescope_start(
      "otel", *pids.flat_map { |pid| ["-p", pid] }, "--workers", "--metrics", "--exceptions", "none",
      env: {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT" => endpoint, "OTEL_METRIC_EXPORT_INTERVAL" => "1000"}
    )
    child.await_line(/attached to/, stream: :err)
    child
  end

  # Returns the counts of each process after some seconds of work.
  def work(all)
    all.each do |target, pid|
      target.await_on("function__stats", "exception__stats", "object__stats", "gc__done", of: pid)
    end
    flushed(all, 1)
    pids = all.map(&:last)
    Process.kill(:USR1, *pids)
    flushed(all, 3)
    Process.kill(:USR2, *pids)
    counts = all.map do |target, pid|
      said.new(pid, *target.await_line(/^counts #{pid} (.*)$/)[1].split.map(&:to_f))
    end
    flushed(all, 1)
    counts
  end

  def flushed(all, times)
    before = all.map { |target, pid| target.info(pid).header[:flushes] }
    await("#{times} flushes") do
      all.zip(before).all? { |(target, pid), flushes| target.info(pid).header[:flushes] > flushes + times }
    end
  end

  # GIVEN workers of one service and a process in the other language, THEN each has its own figures,
  # and the bridge's figures are those in its log.
  it "has the calls, exceptions, allocations and collections of each process" do
    prometheus = keep(Support::Prometheus.new)
    ruby = target(File.join(programs, "figures.rb"), "1", env: {"OTEL_SERVICE_NAME" => "shop"})
    python = target(File.join(programs, "figures.py"), env: {"OTEL_SERVICE_NAME" => "shop"})
    all = processes(ruby, 2) + processes(python, 1)
    bridge = bridge(ruby.pid, python.pid, prometheus.endpoint)
    counts = work(all)
    expect(bridge.stop(within: 60)).to be_success
    report = JSON.parse(bridge.err.lines.grep(/received/).last[/\{.*/])
    await("the last figures") do
      prometheus.query("otel_sdk_exporter_span_exported_total").values == [report.dig("traces", "exported")]
    end

    counts.each do |own|
      of = %(service_name="shop",probescope_process="#{own.pid}")
      calls = prometheus.query("probescope_function_calls_total{#{of}}").transform_keys do |labels|
        labels["code_function_name"][/\w+\z/]
      end
      expect(calls).to include("turn" => own.turns, "costly" => own.turns, "deep" => own.raised * 51)
      sum = ->(name, more) { prometheus.query("sum(probescope_#{name}{#{of},#{more}})").values.first }
      expect(sum.call("function_time_seconds_total", %(code_function_name=~".*\\\\bnap")))
        .to be_within(own.napped * 0.1).of(own.napped)
      expect(sum.call("function_time_max_seconds", %(code_function_name=~".*\\\\bnap")))
        .to be_between(0.002, own.napped)
      expect(sum.call("exceptions_total", %(exception_type=~".*Costly"))).to eq(own.raised)
      expect(sum.call("gc_collections_total", %(probescope_gc_kind=~"major|generation 2")))
        .to be_between(own.collected, own.collected + 5)
    end
    # Python before 3.13 has sizes but no classes.
    things = prometheus.query(%(probescope_allocations_total{probescope_object_type=~".*Thing"}))
    things.transform_keys! { |labels| labels["probescope_process"].to_i }
    counts.each { |own| expect(things.fetch(own.pid, own.turns * 10)).to eq(own.turns * 10) }
    expect(things.keys).to include(*(all.map(&:last) - [python.pid]))
    received = prometheus.query("probescope_bridge_received_total").transform_keys do |labels|
      labels["probescope_event"]
    end
    expect(received).to eq(report["received"])
    expect(prometheus.complaints).to eq("")
  end
end
