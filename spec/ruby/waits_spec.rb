# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/tracing"

RSpec.describe "wait__stats", :bpf do
  fields = { wait__stats: %i[what file line waits blocked function vm_lock longest holder holder_line
                             holder_id] }
  key = %i[what function line]

  if RUBY_VERSION >= "3.2"
    tells_holder = RUBY_VERSION >= "3.3"

    # The line that ends with this comment.
    def line_of(source, mark) = source.lines.index { |line| line.end_with?("# #{mark}\n") } + 1

    # Every kind of wait, with the time that the program measures around it.
    kinds = <<~RUBY
      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
      def timed = (began = now; yield; now - began)

      MUTEX, OTHER, CONDITION, QUEUE = Mutex.new, Mutex.new, ConditionVariable.new, Queue.new
      READ, WRITE = IO.pipe

      class Shop
        def rest = sleep(0.05) # rest
        def hold = MUTEX.synchronize { sleep 0.05 } # hold
        def lock = MUTEX.synchronize { nil } # lock
        def send = QUEUE.push(1) # send
        def receive = QUEUE.pop # receive
        def fetch = READ.read(1) # fetch
        def meet = OTHER.synchronize { CONDITION.wait(OTHER) } # meet
        def signal = OTHER.synchronize { CONDITION.signal } # signal
        def gather(thread) = thread.join # gather
        def reap(pid) = Process.wait(pid) # reap
      end

      def later = Thread.new { sleep 0.05; yield }
      shop = Shop.new
      run = lambda do |kind|
        case kind
        when "rest" then timed { shop.rest }
        when "lock"
          holder = Thread.new { shop.hold }
          Thread.pass until MUTEX.locked?
          timed { shop.lock }.tap { holder.join }
        when "receive" then (other = later { shop.send }; timed { shop.receive }.tap { other.join })
        when "fetch" then (other = later { WRITE.write("x") }; timed { shop.fetch }.tap { other.join })
        when "meet" then (other = later { shop.signal }; timed { shop.meet }.tap { other.join })
        when "gather" then (other = Thread.new { sleep 0.05 }; timed { shop.gather(other) })
        when "reap" then (pid = spawn("sleep 0.05"); timed { shop.reap(pid) })
        end
      end
      Gate.on :wait__stats
      Gate.flushed(1)
      names = %w[rest lock receive fetch meet gather reap]
      times = names.to_h { |kind| [kind, Array.new(3) { run.call(kind) }.sum] }
      sleep 0.3 # the job that finds names
      Gate.flushed
      Gate.done times: times
    RUBY

    def expect_each_kind(run, key, kinds)
      waited = { "rest" => "Kernel#sleep", "lock" => "Thread::Mutex#synchronize",
                 "receive" => "Thread::Queue#pop", "fetch" => "IO#read",
                 "meet" => "Thread::ConditionVariable#wait", "gather" => "Thread#join",
                 "reap" => "Process.wait" }
      rows = run.totals(:wait__stats, key)
      run.report[:times].each do |kind, truth|
        row = rows[[waited.fetch(kind.to_s), "Shop##{kind}", line_of(kinds, kind)]]
        expect(row).not_to be_nil, "#{kind}: #{rows.keys}"
        expect(row[:waits]).to be >= 3
        expect(row[:blocked]).to be >= 120_000_000, "#{kind}: #{row}"
        expect(row[:blocked] + row[:vm_lock]).to be_between(truth - 20_000_000, truth), "#{kind}: #{row}"
        expect(row[:longest]).to be_between(row[:blocked] / row[:waits], truth)
      end
      expect(run.target.err).to be_empty
    end

    it "tells what waited, at which line of the application, and for how long" do
      expect_each_kind(trace(kinds, fields), key, kinds)
    end

    if RUBY_VERSION >= "3.3"
      it "tells the same where threads share native ones" do
        # The main thread has a native thread of its own.
        source = kinds.sub(/^times = (.*)/) { "times = Thread.new { #{Regexp.last_match(1)} }.value" }
        expect_each_kind(trace(source, fields, env: { "RUBY_MN_THREADS" => "1" }), key, source)
      end
    end

    it "tells which line ended the wait" do
      run = trace(kinds, fields)
      holders = run.events(:wait__stats).group_by { |event| event[:function] }.transform_values do |events|
        most = events.group_by { |event| event.values_at(:holder, :holder_line) }
                     .transform_values { |same| same.sum { |event| event[:blocked] } }
        most.max_by(&:last).first
      end
      ended = { "rest" => nil, "lock" => "hold", "receive" => "send", "meet" => "signal", "reap" => nil,
                "fetch" => nil }
      ended.each do |kind, by|
        truth = by && tells_holder ? ["Shop##{by}", line_of(kinds, by)] : ["", 0]
        expect([kind, holders["Shop##{kind}"]]).to eq([kind, truth])
      end
      run.events(:wait__stats).each { |event| expect(event[:holder_id].zero?).to be(event[:holder].empty?) }
    end

    it "counts each wait of many threads once, also where threads are killed and objects move" do
      run = trace(<<~RUBY, fields)
        class Mill
          def turn = sleep(0) # turn
          def stand = sleep # stand
        end
        mill = Mill.new
        Gate.on :wait__stats
        Gate.flushed(1)
        moves = GC.respond_to?(:compact)
        begin
          moves &&= GC.compact
        rescue NotImplementedError
          moves = false
        end
        done = 0
        threads = Array.new(10) { Thread.new { 10_000.times { mill.turn } } }
        idle = Array.new(50) { Thread.new { mill.stand } }
        Thread.pass until idle.all?(&:stop?)
        while threads.any?(&:alive?)
          moves ? GC.compact : GC.start
          sleep 0.01
        end
        idle.each(&:kill).each(&:join)
        sleep 0.3
        Gate.flushed
        Gate.done
      RUBY
      rows = run.totals(:wait__stats, %i[what function])
      expect(rows[["Kernel#sleep", "Mill#turn"]][:waits]).to eq(100_000)
      expect(rows[["Kernel#sleep", "Mill#stand"]][:waits]).to eq(50)
      expect(run.totals(:stats__done)["dropped"]).to be_nil
      expect(run.target.err).to be_empty
    end

    it "keeps no object alive" do
      run = trace(<<~RUBY, fields)
        class Holder; end
        def once
          holder = Holder.new
          def holder.rest = sleep(0.0001)
          holder.rest
          nil
        end
        Gate.on :wait__stats
        Gate.flushed(1)
        400.times { once }
        Gate.flushed(1)
        4.times { GC.start }
        Gate.done alive: ObjectSpace.each_object(Holder).count
      RUBY
      expect(run.report[:alive]).to be <= 10
      rows = run.totals(:wait__stats, %i[what function])
      expect(rows[["Kernel#sleep", "#<Holder>.rest"]][:waits]).to eq(400)
    end

    it "goes on in a forked child, and counts there what the child waited for" do
      run = trace(<<~RUBY, fields, once: nil)
        class Parent
          def wait(pid) = Process.wait(pid) # wait
          def idle = sleep # idle
        end
        class Child
          def rest = sleep(0.05) # rest
        end
        Gate.on :wait__stats
        Gate.flushed(1)
        parent = Parent.new
        threads = Array.new(5) { Thread.new { parent.idle } }
        Thread.pass until threads.all?(&:stop?)
        children = Array.new(10) do
          pid = fork do
            Array.new(3) { Thread.new { Child.new.rest } }.each(&:join)
            exit!(0)
          end
          parent.wait(pid)
          $?.success?
        end
        sleep 0.3
        Gate.flushed
        Gate.done children: children
      RUBY
      expect(run.report[:children]).to eq([true] * 10)
      rows = run.totals(:wait__stats, %i[what function])
      expect(rows[["Process.wait", "Parent#wait"]][:waits]).to be_between(10, 20)
      expect(rows.keys.map(&:last)).not_to include("Child#rest")
      expect(run.target.err).to be_empty
    end
  else
    it "is not served by this Ruby, and gives the reason" do
      target, = program("Gate.done")
      target.await_line(/\Areport/)
      expect(target.info.probes.fetch("wait__stats")).to include(state: :unsupported, reason: /from 3\.2 on/)
    end
  end
end
