# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/tracing"

RSpec.describe "samples", :bpf do
  it "divide the CPU time between methods like the methods' own CPU clocks, within 5 points" do
    attempts do
      run = trace(<<~RUBY, { sample__stats: %i[function self total self_samples] })
        def cpu = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
        $clock = Hash.new(0)
        def timed(name) = (start = cpu; send(name); $clock[name] += cpu - start)
        def heavy = (n = 0; n += 1 while n < 60_000)
        def light = (n = 0; n += 1 while n < 20_000)
        1000.times { timed(:heavy); timed(:light) }
        Gate.on :sample__stats
        Gate.flushed(1)
        # The clock is read rarely, because another thread mostly gets the CPU when this one reads
        # its CPU time. The duration is CPU time, so a busy machine gives as many samples.
        ends = cpu + 8
        500.times { heavy; light } while cpu < ends
        Gate.done $clock
      RUBY
      rows = run.totals(:sample__stats)
      whole = rows.sum { |_, row| row[:self] }.to_f
      clocks = run.report.values.sum
      { "Object#heavy" => :heavy, "Object#light" => :light }.each do |function, clock|
        expect(rows.fetch(function)[:self] / whole).to be_within(0.05).of(run.report[clock] / clocks)
      end
      expect(rows.fetch("Object#heavy")[:self_samples]).to be > 100
    end
  end

  it "count recursion once in the total, and have whole stacks" do
    fields = { sample__stats: %i[function self total], sample__frame: %i[function line stack_id index],
               sample: %i[function weight stack_id] }
    run = trace(<<~RUBY, fields)
      def spin = (n = 0; n += 1 while n < 2_000)
      def recursive(n) = n.zero? ? spin : recursive(n - 1)
      def outer = recursive(20)
      Gate.on :sample__stats, :sample__frame, :sample
      ends = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 2
      outer while Process.clock_gettime(Process::CLOCK_MONOTONIC) < ends
      Gate.done
    RUBY
    rows = run.totals(:sample__stats)
    expect(rows["Object#recursive"][:total]).to be <= rows["Object#outer"][:total]
    expect(rows["Object#spin"][:self]).to be > rows["Object#recursive"][:self]
    stacks = run.events(:sample__frame).group_by { |frame| frame[:stack_id] }
    whole = stacks.values.find { |frames| frames.map { |frame| frame[:function] }.include?("Object#spin") }
    names = whole.map { |frame| frame[:function] }
    expect(names).to include("Object#spin", "Object#recursive", "Object#outer", "<main>")
    expect(run.events(:sample).map { |event| event[:weight] }).to all(be_positive)
  end

  it "are not taken in a sleeping process" do
    run = trace(<<~RUBY, { sample__stats: %i[function self], sample: %i[function weight] })
      Gate.on :sample__stats, :sample
      Gate.flushed(1)
      def idle = sleep(3)
      idle
      Gate.done
    RUBY
    asleep = run.totals(:sample__stats).fetch("Object#idle", { self: 0 })
    expect(asleep[:self]).to be < 20_000_000
  end
end
