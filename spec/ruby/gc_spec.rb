# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/tracing"

RSpec.describe "garbage collection probes", :bpf do
  it "pair start and done, distinguish minor from major, and number collections like GC.count" do
    run = trace(<<~RUBY, { gc__start: %i[kind generation], gc__done: %i[kind generation elapsed objects] })
      def litter = 400_000.times { Object.new }
      Gate.on :gc__start, :gc__done
      GC.start
      first = GC.count
      litter
      minors = GC.stat(:minor_gc_count)
      GC.start(full_mark: false)
      minor = GC.count
      GC.start
      Gate.done first: first, minor: minor, last: GC.count, live: GC.stat(:heap_live_slots)
    RUBY
    starts = run.events(:gc__start)
    done = run.events(:gc__done)
    generations = starts.map { |event| event[:generation] }
    expect(generations).to eq(generations.uniq.sort)
    expect(generations).to include(run.report[:first], run.report[:minor], run.report[:last])
    ended, began = [done, starts].map { |events| events.map { |event| event.values_at(:kind, :generation) } }
    expect(ended - began).to eq([])
    kinds = starts.to_h { |event| event.values_at(:generation, :kind) }
    expect(kinds.values_at(*run.report.values_at(:first, :minor, :last))).to eq(%w[major minor major])
    expect(done).to all(include(elapsed: be_positive, objects: be_positive))
    expect(done.last[:objects]).to be_within(run.report[:live] / 10).of(run.report[:live])
  end
end
