# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/tracing"

RSpec.describe "the application's objects", :bpf do
  # Each round makes an object with a singleton method, and an anonymous class. A reference to the
  # method keeps 100 KB alive.
  let(:source) { <<~RUBY }
    class Holder
      def initialize = @data = "x" * 100_000
    end
    class Failure < StandardError; end

    def once
      holder = Holder.new
      def holder.work
        ends = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 0.002
        nil while Process.clock_gettime(Process::CLOCK_MONOTONIC) < ends
        yield
      end
      failure = Class.new(Failure)
      holder.work do
        raise failure
      rescue failure => e
        e.backtrace
      end
      box = Class.new(Holder)
      box.allocate
      nil
    end

    def round(times) = times.times { once }

    def alive
      4.times { GC.start }
      [ObjectSpace.each_object(Holder).count, ObjectSpace.each_object(Failure.singleton_class).count,
       ObjectSpace.each_object(Holder.singleton_class).count]
    end

    Gate.on PROBE
    round 400
    Gate.flushed(1) # stacks of the last 100 ms may not have been processed
    Gate.done holders: alive[0], failures: alive[1], boxes: alive[2]
  RUBY

  fields = { sample__stats: %i[function line self], backtrace__done: %i[function line type],
             exception__stats: %i[type line raised], object__stats: %i[class line allocated],
             function__stats: %i[function line calls], line: %i[function line] }

  # Of 400 classes, two of each kind stay for good. Stale words on the stack may keep some more.
  fields.each do |probe, names|
    it "are not kept alive by #{probe}, and have one row for one method" do
      run = trace(source.sub("PROBE", probe.inspect), { probe => names })
      expect(run.report.values).to all(be <= 10)
      places = run.events(probe).map { |event| event.values_at(*names.first(2)) }.uniq
      of_objects = places.select { |name, _| name.match?(/Holder|Failure/) }
      lines = of_objects.map(&:last)
      expect(lines).to eq(lines.uniq)
      expect(of_objects.flatten.join).not_to match(/0x\h/)
    end
  end

  # The thread has ended, so no stale word on its stack keeps the exception.
  it "are not kept alive because their backtrace was the last one that became strings" do
    run = trace(<<~RUBY, { backtrace__done: %i[kind depth] })
      class Failure < StandardError; end
      def failed = (raise Failure, "x") rescue $!
      Gate.on :backtrace__done
      Thread.new { failed.backtrace; failed.full_message; nil }.join
      4.times { GC.start }
      Gate.done alive: ObjectSpace.each_object(Failure).count
    RUBY
    expect(run.events(:backtrace__done).map { |event| event[:kind] }).to eq(%w[backtrace full_message])
    expect(run.report).to eq(alive: 0)
  end
end
