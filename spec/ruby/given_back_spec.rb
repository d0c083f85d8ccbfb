# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/tracing"

RSpec.describe "names" do
  # New files raise, allocate and use CPU all the time, so each attach needs names that no earlier
  # attach needed. Each attach has 2,000 of them, however long that takes.
  let(:source) { <<~RUBY }
    attaches = 0
    traced = -> { Probescope.status[:probes][:exception__stats].first == :on }
    loop do
      sleep 0.002 until traced.call
      attaches += 1
      2000.times do |n|
        eval("begin; raise(ArgumentError); rescue ArgumentError; Object.new; end", nil,
             "\#{__dir__}/fresh/\#{attaches}/\#{n}.rb", n)
      end
      sleep 0.002 while traced.call
    end
  RUBY

  probes = %w[exception__stats object__stats sample__frame stack__frame stack__cpu]

  def rss(target) = File.read("/proc/#{target.pid}/status")[/VmRSS:\s+(\d+)/, 1].to_i

  # Returns the memory of the process in KiB after the hooks are out and the memory of names and
  # rows is freed.
  def rss_without_names(target, probes)
    target.await_off(*probes)
    await("less than 4 KiB of memory of the library's") { target.info.header[:memory_used] < 4096 }
    rss(target)
  end

  # Without that, 20 attaches leave names of 40,000 lines, and fill the 8 MiB.
  it "are freed when the last tracer has left: 100 attaches (30 in the gate) need no more memory than 10",
     :bpf do
    target, = program(source, env: { "PROBESCOPE_MEMORY" => "8M" })
    attacher(target, *probes, cycles: 10).finish(within: 120)
    rss = rss_without_names(target, probes)
    attacher(target, *probes, cycles: ENV["PROBESCOPE_GATE"] ? 20 : 90).finish(within: 250)
    expect(rss_without_names(target, probes)).to be < rss + 8192
    expect(target.info.header[:rows_dropped]).to eq(0)
    expect(target.err).to be_empty
  end
end
