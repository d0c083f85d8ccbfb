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

    # The threads wait for each other and for a read that takes a native thread. A wait that was kept
    # with the native thread would get the line, the number or the time of another thread.
    it "keeps the waits of each Ruby thread apart where threads share native ones" do
      skip "of another Ruby: 3.3 and later" if RUBY_VERSION < "3.3"
      threads, rounds = 12, 40
      run = trace(<<~RUBY, fields, env: { "RUBY_MN_THREADS" => "1", "RUBY_MAX_CPU" => "4" })
        def now = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
        class Mill
          #{Array.new(threads) { |n| "def turn_#{n} = sleep(0.00#{2 + (n % 8)}) # turn #{n}" }.join("\n  ")}
        end
        mill = Mill.new
        Gate.on :wait__stats
        Gate.flushed(1)
        all = Array.new(#{threads}) do |n|
          Thread.new do
            natives, waited = [], 0
            #{rounds}.times do
              began = now
              mill.public_send(:"turn_\#{n}")
              waited += now - began
              natives << Thread.current.native_thread_id
              File.read("/proc/self/smaps")
            end
            [waited, natives.uniq]
          end
        end
        waited, natives = all.map(&:value).transpose
        Gate.flushed
        Gate.done waited: waited, natives: natives.flatten.uniq.size, moved: natives.count { |one| one.size > 1 }
      RUBY
      expect(run.report[:natives]).to be < threads
      expect(run.report[:moved]).to be > 0
      rows = run.totals(:wait__stats, %i[what function])
      run.report[:waited].each_with_index do |truth, n|
        row = rows.fetch(["Kernel#sleep", "Mill#turn_#{n}"])
        # Ruby's timer wakes a thread up to 1 ms early. Then the thread sleeps once more.
        expect(row[:waits]).to be_between(rounds, rounds * 1.5)
        least = rounds * (2 + (n % 8)) * 1_000_000
        expect(row[:blocked]).to be >= least * 0.95, "#{n}: #{row}"
        expect(row[:blocked] + row[:vm_lock]).to be_between(truth * 0.7, truth), "#{n}: #{row} of #{truth}"
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

    # GIVEN more threads than the library has places for, that have waited and end while nobody listens.
    it "counts all waits after 9,000 threads that ended between two tracers" do
      target, directory = program(<<~RUBY)
        class Mill
          def turn(queue) = queue.pop
          def rest = sleep(0) # rest
        end
        mill = Mill.new
        $stdout.sync = true
        9.times do |round|
          Gate.on :wait__stats
          queue = Queue.new
          threads = Array.new(1_000) { Thread.new { mill.turn(queue) } }
          Thread.pass until queue.num_waiting == 1_000
          $stdout.puts "round \#{round}"
          Gate.off :wait__stats
          queue.close
          threads.each(&:join)
        end
        $stdout.puts "last"
        Gate.on :wait__stats, :stats__done
        Gate.flushed(1)
        Array.new(100) { Thread.new { 10.times { mill.rest } } }.each(&:join)
        Gate.flushed
        Gate.done
      RUBY
      9.times do |round|
        listener = attacher(target, "wait__stats").tap(&:attached)
        target.await_line(/\Around #{round}$/)
        listener.detach
        listener.finish
      end
      target.await_line(/\Alast/)
      all = { stats__done: %i[sequence rows dropped] }.merge(fields)
      run = Tracing::Run.new(target, tracer(Tracing.text(all), pid: target.pid), directory, all).finish
      expect(run.totals(:wait__stats, %i[what function])[["Kernel#sleep", "Mill#rest"]][:waits]).to eq(1_000)
      expect(run.events(:stats__done).sum { |event| event[:dropped] }).to eq(0)
    end

    # No job runs where hardly any stack is left, so no name is found there.
    deep = <<~RUBY
      class Diver
        def rest = sleep(0.001) # rest
        def dive(depth, &work) = depth.zero? ? work.call : dive(depth - 1, &work)
      end
      diver = Diver.new
      Gate.on :wait__stats
      Gate.flushed(1)
    RUBY

    it "counts without a name, when the interval ends, what has none yet" do
      run = trace(<<~RUBY, fields)
        #{deep}
        diver.dive(600) do
          200.times { diver.rest }
          $stdout.write("report {}\\n")
          $stdout.flush
          nil while true
        end
      RUBY
      rows = run.totals(:wait__stats, %i[what function])
      # The report is one or two waits more.
      expect(rows.fetch(["(unnamed)", ""])[:waits]).to be_between(200, 203)
      expect(rows.fetch(["(unnamed)", ""])[:blocked]).to be >= 200_000_000
      expect(rows.keys).not_to include(["Kernel#sleep", "Diver#rest"])
      expect(run.events(:stats__done).sum { |event| event[:dropped] }).to eq(0)
    end

    it "names the last waits of a process that ends" do
      run = start(<<~RUBY, fields)
        #{deep}
        diver.dive(600) { 5.times { diver.rest } }
      RUBY
      run.target.wait
      rows = await("the rows of the end\n#{run.tracer}") do
        found = run.totals(:wait__stats, key)
        found if found.key?(["Kernel#sleep", "Diver#rest", line_of(deep, "rest")])
      end
      expect(rows[["Kernel#sleep", "Diver#rest", line_of(deep, "rest")]][:waits]).to eq(5)
      expect(rows.keys.map(&:first)).not_to include("(unnamed)")
    end

    # No job runs in a process whose threads all wait.
    it "names a wait before its thread waits again" do
      run = trace(<<~RUBY, fields)
        class Clerk
          #{Array.new(50) { |n| "def rest_#{n} = sleep(0.001)" }.join("\n  ")}
        end
        clerk = Clerk.new
        reader, writer = IO.pipe
        Gate.on :wait__stats
        Gate.flushed(1)
        $stdout.write("report {}\\n")
        $stdout.flush
        50.times { |n| clerk.public_send(:"rest_\#{n}") }
        reader.read(1)
      RUBY
      rows = run.totals(:wait__stats, %i[what function])
      expect(Array.new(50) { |n| rows.fetch(["Kernel#sleep", "Clerk#rest_#{n}"])[:waits] }).to all(eq(1))
      expect(rows.keys.map(&:first)).not_to include("(unnamed)")
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

    # Fibers take turns, and objects move meanwhile. The route is known at the end of a request only.
    # The last method has not waited before, so the names of its wait are found after its request.
    by_request = <<~RUBY
      class Desk
        def rest = sleep(0.001) # rest
        #{Array.new(20) { |n| "def once_#{n} = sleep(0.001)" }.join("\n  ")}
      end

      def serve(desk, path, template, times)
        request = Probescope::Native::Request.start("GET", path, nil, nil)
        outer = Probescope::Native.enter_request(request)
        times.times { desk.rest; Fiber.yield }
        yield if block_given?
        Probescope::Native.enter_request(outer)
        request.done(200, template) if template
        nil
      end

      def turns(desk, number)
        fibers = [Fiber.new { serve(desk, "/orders/\#{number}", "/orders/:id", 3) },
                  Fiber.new { serve(desk, "/carts/\#{number}", nil, 2) { desk.public_send("once_\#{number}") } },
                  Fiber.new { 4.times { desk.rest; Fiber.yield } }]
        fibers.each { |fiber| fiber.resume if fiber.alive? } while fibers.any?(&:alive?)
      end

      desk = Desk.new
      Gate.on :wait__stats, :stats__by_request
      Gate.flushed(1)
      moves = GC.respond_to?(:compact)
      begin
        moves &&= GC.compact
      rescue NotImplementedError
        moves = false
      end
      threads = Array.new(4) { |i| Thread.new { 5.times { |n| turns(desk, 5 * i + n) } } }
      moves ? GC.compact : GC.start while threads.any?(&:alive?)
      threads.clear
      4.times { GC.start } # frees the requests that were not done
      sleep 0.3
      Gate.flushed
      Gate.done
    RUBY

    it "tells the request in which the thread waited" do
      run = trace(by_request, { wait__stats: [*fields[:wait__stats], :request, :request_number] },
                  attach: %i[stats__by_request])
      rows = run.totals(:wait__stats, %i[function request])
      waits = rows.select { |(function, _), _| function == "Desk#rest" }
                  .to_h { |(_, request), row| [request, row[:waits]] }
      expect(waits).to eq("GET /orders/:id" => 60, "GET /carts/*" => 40, "" => 80)
      expect(Array.new(20) { |n| rows.fetch(["Desk#once_#{n}", "GET /carts/*"])[:waits] }).to all(eq(1))
      expect(rows.keys.map(&:last).uniq).to match_array(waits.keys)
      run.events(:wait__stats).each do |event|
        expect(event[:request_number].zero?).to be(event[:request].empty?)
      end
      expect(run.target.err).to be_empty
    end

    it "tells no request while nobody asks for it" do
      run = trace(by_request.sub(", :stats__by_request", ""),
                  { wait__stats: [*fields[:wait__stats], :request, :request_number] })
      rows = run.totals(:wait__stats, %i[function request])
      expect(rows.fetch(["Desk#rest", ""])[:waits]).to eq(180)
      expect(rows.keys.map(&:last).uniq).to eq([""])
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
