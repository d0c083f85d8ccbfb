# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/tracing"

# Ruby threads share native threads. After a wait, also in the middle of a hook, a Ruby thread may
# continue on another native thread. So a hook must not store a thread's data with the native
# thread.
RSpec.describe "with RUBY_MN_THREADS=1", :bpf do
  before { skip "of another Ruby: 3.3 and later" if RUBY_VERSION < "3.3" }

  it "the allocations of hooks are left out on their own thread only" do
    fields = { object__stats: %i[class file line allocated], function__stats: %i[function calls] }
    run = trace(<<~'RUBY', fields, env: { "RUBY_MN_THREADS" => "1", "RUBY_MAX_CPU" => "4" })
      class Box; end
      class Made; end
      # The hook calls this for compiled text. Here it waits while other threads run.
      class TracePoint
        alias instruction_sequence_before instruction_sequence
        def instruction_sequence
          sleep 0.001
          instruction_sequence_before
        end
      end
      def boxes(n) = (i = 0; (Box.new; i += 1) while i < n)
      def evaluate(n) = eval("def made_#{n} = Made.new\nmade_#{n}")
      Gate.on :object__stats, :function__stats
      threads = Array.new(12) do |t|
        Thread.new do
          Array.new(30) do |i|
            evaluate(t * 100 + i)
            boxes(50)
            Thread.pass
            Thread.current.native_thread_id
          end
        end
      end
      Gate.done natives: threads.flat_map(&:value).uniq.size
    RUBY
    expect(run.report[:natives]).to be < 12
    allocated = run.totals(:object__stats, :class).transform_values { |row| row[:allocated] }
    expect(allocated).to include("Box" => 12 * 30 * 50, "Made" => 12 * 30)
    run.target.await_off("object__stats", "function__stats")
  end

  it "samples are charged at the next check, whichever number switches it on" do
    %w[1 2].each do |number|
      target, = program("Gate.done", env: { "RUBY_MN_THREADS" => number })
      target.await_line(/\Areport/)
      tracer = attacher(target, "sample__stats").tap(&:attached)
      expect(target.info.probes.fetch("sample__stats"))
        .to include(state: :degraded, reason: /threads share native ones/)
      tracer.finish
    end
  end

  # GIVEN calls that wait, continue on a native thread on which another thread has run, and leave
  # their fiber without a further call.
  it "the time until a fiber continues is not charged to its calls" do
    fields = { function__slow10ms: %i[function elapsed self] }
    run = trace(<<~'RUBY', fields, env: { "RUBY_MN_THREADS" => "1", "RUBY_MAX_CPU" => "2" })
      class Source
        def rests = (sleep 0.001; Fiber.yield)
        def short = nil
      end
      Gate.on :function__slow10ms
      threads = Array.new(8) do
        Thread.new do
          Array.new(20) do
            fiber = Fiber.new { Source.new.rests }
            fiber.resume
            began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
            10.times { Source.new.short; sleep 0.005 }
            paused = Process.clock_gettime(Process::CLOCK_MONOTONIC) - began
            fiber.resume
            paused
          end
        end
      end
      Gate.done paused: threads.flat_map(&:value).sum
    RUBY
    rests = run.events(:function__slow10ms).select { |event| event[:function] == "Source#rests" }
    expect(rests.size).to eq(160)
    without = rests.sum { |event| event[:elapsed] - event[:self] } / 1e9
    expect(without).to be_within(0.05 * run.report[:paused]).of(run.report[:paused])
  end
end
