# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/tracing"
require_relative "support/here"

# At each stage the program says in which function its threads are, and waits. The spec stops it and
# reads the records.
RSpec.describe "function__here", :bpf do
  fields = { function__here: Tracing::Here::FIELDS }

  # {thread => address of its record}
  def records(run) = run.events(:function__here).to_h { |event| event.values_at(:thread_id, :record) }

  # Stops the process while the block runs.
  def stopped(pid)
    Process.kill(:STOP, pid)
    await("#{pid} stopped") { File.read("/proc/#{pid}/stat").rpartition(")").last.split.first == "T" }
    yield
  ensure
    Process.kill(:CONT, pid)
  end

  # Compares a stage. all: whether each thread has a record. Returns the records.
  def look(run, name, all: true, pid: run.target.pid)
    told = JSON.parse(run.target.await_line(/^stage #{name} (.*)/)[1]).transform_keys(&:to_i)
    found = await("records of all threads of #{name}\n#{run.target}") do
      found = records(run).slice(*told.keys)
      found if !all || found.size == told.size
    end
    stopped(pid) do
      here = Tracing::Here.new(pid)
      functions = found.transform_values { |record| here.function(record) }
      expect(functions).to eq(told.slice(*found.keys)), "#{name}: #{functions} instead of #{told}"
    end
    found
  ensure
    run.open(name)
  end

  # Traces the child that the program has told. Returns its number and the Run.
  def trace_child(run, fields)
    child = run.target.await_line(/^child (\d+)/)[1].to_i
    both = { stats__done: %i[sequence rows dropped] }.merge(fields)
    of_child = Tracing::Run.new(run.target, tracer(Tracing.text(both), pid: child), run.directory, both)
    await("a flush of the child") { of_child.flushes.any? }
    run.open(:traced)
    [child, of_child]
  end

  desk = <<~RUBY
    class Desk
      def inner = yield

      def outer
        inner { Gate.stage(:inner, "Desk#inner") }
        Gate.stage(:outer, "Desk#outer")
      end

      def fails = raise("lost")
      def deep = fails

      def rescues
        deep
      rescue RuntimeError
        Gate.stage(:rescued, "Desk#rescues")
      end

      def throws = throw(:out)

      def catches
        catch(:out) { throws }
        Gate.stage(:caught, "Desk#catches")
      end

      def pops(queue) = queue.pop
      def naps = sleep
      def step = 1
      def recurses(number) = recurses(number + 1)
    end
  RUBY
  # After all methods are defined.
  ready = <<~RUBY
    desk = Desk.new
    Gate.on(:function__here)
    Gate.flushed(1)
  RUBY

  it "leads to the function in which the thread is, through blocks, exceptions and throws" do
    run = start(<<~RUBY, fields)
      #{desk}
      #{ready}
      desk.outer
      Gate.stage(:outside, nil)
      desk.rescues
      desk.catches
      Gate.done
    RUBY
    %i[inner outer outside rescued caught].each { |stage| look(run, stage) }
    run.finish
    event = run.events(:function__here).first
    expect(event.values_at(:gil, :gil_bytes)).to eq([0, 0])
  end

  it "follows fibers, also those of Enumerator, and abandoned ones" do
    run = start(<<~RUBY, fields)
      #{desk}
      class Desk
        def in_fiber
          Gate.stage(:in_fiber, "Desk#in_fiber")
          Fiber.yield
          Gate.stage(:resumed, "Desk#in_fiber")
        end

        def drives
          fiber = Fiber.new { in_fiber }
          fiber.resume
          Gate.stage(:beside, "Desk#drives")
          fiber.resume
          Gate.stage(:after, "Desk#drives")
        end

        def gives(yielder)
          yielder << 1
          Gate.stage(:given, "Desk#gives")
          yielder << 2
        end

        def takes
          gives = Enumerator.new { |yielder| gives(yielder) }
          gives.next
          Gate.stage(:between, "Desk#takes")
          gives.next
          Gate.stage(:taken, "Desk#takes")
        end

        def yields = Fiber.yield

        def abandons
          200.times { Fiber.new { yields }.resume }
          GC.start
          Gate.stage(:abandoned, "Desk#abandons")
        end

        def in_a_thread
          Thread.new { Fiber.new { step; Gate.stage(:fiber_of_thread, nil); yields }.resume; step }.join
        end
      end
      #{ready}
      desk.drives
      desk.takes
      desk.abandons
      desk.in_a_thread
      Gate.done
    RUBY
    %i[in_fiber beside resumed after between given taken abandoned fiber_of_thread].each do |stage|
      look(run, stage)
    end
    run.finish
  end

  it "is right for each of many threads, and names nothing where a thread has ended" do
    run = start(<<~RUBY, fields)
      #{desk}
      #{ready}
      queue = Queue.new
      asleep = lambda do |threads|
        sleep 0.01 until threads.all? { |thread| thread.status == "sleep" }
        threads
      end
      numbers = ->(threads, name) { threads.to_h { |thread| [thread.native_thread_id, name] } }

      waiting = asleep[Array.new(20) { Thread.new { desk.inner { desk.pops(queue) } } }]
      napping = asleep[Array.new(20) { Thread.new { desk.naps } }]
      outside = asleep[Array.new(20) { Thread.new { desk.step; sleep } }]
      Gate.stage(:threads, numbers[waiting, "Desk#pops"].merge(numbers[napping, "Desk#naps"],
                                                              numbers[outside, nil]))

      all = waiting + napping + outside
      ended = numbers[all, nil]
      all.each { |thread| thread.report_on_exception = false }
      waiting.each(&:kill)
      napping.each { |thread| thread.raise(KeyError) }
      outside.each(&:wakeup)
      all.each { |thread| thread.join rescue KeyError }
      all = waiting = napping = outside = nil
      4.times { GC.start }
      Gate.stage(:ended, ended)

      # Each thread ends with open calls whose exits Ruby does not report. Ruby 3.1 and 3.2 use the
      # native threads again.
      deep = Array.new(20) { Thread.new { Thread.current.report_on_exception = false; desk.recurses(0) } }
      deep.each do |thread|
        thread.join
      rescue SystemStackError
        nil
      end
      again = asleep[Array.new(20) { Thread.new { sleep } }]
      Gate.stage(:again, numbers[again, nil])
      Gate.done
    RUBY
    look(run, :threads)
    found = look(run, :ended)
    here = Tracing::Here.new(run.target.pid)
    expect(found.values.count { |record| here.stack(record).zero? }).to be > found.size / 2
    look(run, :again, all: false)
    run.finish
  end

  it "is right in a forked child, in which the parent's other threads have no record" do
    run = start(<<~RUBY, fields)
      #{desk}
      class Desk
        def forks
          fork do
            # At its first event the kernel may take the parent's tracer out of the child.
            step
            $stdout.puts("child \#{Process.pid}")
            $stdout.flush
            Gate.open(:traced)
            Gate.on(:function__here)
            Gate.flushed(1)
            in_child
          end
          Gate.stage(:parent, "Desk#forks")
        end

        # Ruby 3.1 has the number of the parent's thread here.
        def in_child = Gate.stage(:child, Process.pid => "Desk#in_child")
      end
      #{ready}
      queue = Queue.new
      threads = Array.new(5) { Thread.new { desk.pops(queue) } }
      sleep 0.01 until threads.all? { |thread| thread.status == "sleep" }
      desk.forks
      Gate.done
    RUBY
    child, of_child = trace_child(run, fields)
    run.target.await_line(/^stage child/)
    here = Tracing::Here.new(child)
    others = records(run).except(run.target.pid)
    expect(others.size).to eq(5)
    expect(others.values.map { |record| here.stack(record) }).to all(eq(0))
    expect(look(of_child, :child, pid: child)).to eq(child => records(run)[run.target.pid])
    of_child.tracer.finish
    look(run, :parent)
    run.finish
  end

  it "leads to functions of the program, or tells of the library's work, whenever the process is stopped" do
    run = start(<<~RUBY, fields)
      #{desk}
      class Desk
        def dives(depth) = depth.zero? ? step : dives(depth - 1)
        def gives(yielder) = 3.times { |number| yielder << number }
        def takes = Enumerator.new { |yielder| gives(yielder) }.then { |some| 2.times { some.next } }
        def tries = dives(rand(40)) && fails rescue 1
        def makes = Array.new(100) { "x" * 100 }

        def works
          loop { [method(:takes), method(:tries), method(:makes)].sample.call }
        end
      end
      #{ready}
      6.times { Thread.new { desk.works } }
      Thread.new { loop { Thread.new { desk.works }.tap { sleep 0.003 }.kill.join } }
      Gate.open(:enough)
      Gate.done
    RUBY
    await("a record for each thread") { records(run).size >= 6 }
    here = Tracing::Here.new(run.target.pid)
    found = Array.new(300) do
      sleep(rand / 200)
      stopped(run.target.pid) { records(run).values.uniq.map { |record| here.function(record) } }
    end
    names = %w[dives gives takes tries makes works step fails].map { |name| "Desk##{name}" }
    told = found.flatten.compact
    ours, functions = told.partition { |function| function == "(probescope)" }
    expect(functions.uniq - names).to be_empty
    expect(functions.uniq.size).to be > 3
    expect(ours.size).to be < 0.05 * told.size
    run.open(:enough)
    run.finish
  end

  it "fires again for a tracer that comes later" do
    run = start(<<~RUBY, fields)
      #{desk}
      #{ready}
      Thread.new { loop { desk.step; sleep 0.01 } }
      desk.step
      Gate.open(:second)
      Gate.done
    RUBY
    await("the first event") { records(run).any? }
    second = tracer(Tracing.text(fields), pid: run.target.pid)
    lines = await("an event for the second tracer\n#{second}") do
      second.out.lines.grep(/^function__here\t/).then { |found| found if found.size >= 4 }
    end
    told = lines.to_h { |line| line.split("\t").values_at(4, 1).map(&:to_i) }
    expect(records(run)).to include(told)
    second.finish
    run.open(:second)
    run.finish
  end

  describe "where Ruby's threads share native threads" do
    before { skip "of another Ruby: 3.3 and later" if RUBY_VERSION < "3.3" }

    shared = { "RUBY_MN_THREADS" => "1", "RUBY_MAX_CPU" => "2" }
    # Ruby 3.4 can crash where a fiber goes on on another native thread (seen: 3.4.11, without the
    # library; ruby/ruby#17802).
    fibers_move = RUBY_VERSION < "3.4"
    # A thread that waits for a file lock keeps its native thread, so Ruby makes more of them.
    keepers = <<~RUBY
      keepers = Array.new(3) do
        Thread.new { loop { File.open(__FILE__) { |file| file.flock(File::LOCK_EX); sleep 0.003 } } }
      end
    RUBY
    # The calling thread waits for a file lock while the spec looks. If it is interrupted there, it may
    # go on waiting on another native thread. This is no method, so it is not traced.
    stays = <<~RUBY
      STAYS = lambda do |name, function|
        path = File.join(ENV.fetch("GATE_DIRECTORY"), "at \#{name}")
        (lock = File.open("\#{path}.lock", "w")).flock(File::LOCK_EX)
        thread = Thread.current
        teller = Thread.new do
          until File.exist?(File.join(ENV.fetch("GATE_DIRECTORY"), name.to_s))
            File.write("\#{path}.new", JSON.generate(thread.native_thread_id => function))
            File.rename("\#{path}.new", path)
            sleep 0.002
          end
          lock.close
        end
        File.open("\#{path}.lock") { |file| file.flock(File::LOCK_EX) }
        teller.join
      end
    RUBY

    flock = RbConfig::CONFIG["host_cpu"] == "x86_64" ? "73" : "32"

    # Compares a stage at which a thread waits as above: its native thread has its function, and at no
    # moment another one.
    define_method(:look_at) do |run, name, pid: run.target.pid|
      path = File.join(run.directory, "at #{name}")
      here = Tracing::Here.new(pid)
      await("the function of #{name}\n#{run.target}") do
        next unless File.exist?(path)

        stopped(pid) do
          native, function = JSON.parse(File.read(path)).first
          next if native.empty? || File.read("/proc/#{pid}/task/#{native}/syscall").split.first != flock

          record = records(run)[native.to_i]
          found = here.function(record) if record
          expect([function, nil]).to include(found)
          found
        end
      end
    ensure
      run.open(name)
    end

    it "follows threads to other native threads, and names no function of a thread that waits" do
      run = start(<<~RUBY, fields, env: shared)
        #{desk}
        class Desk
          def in_fiber
            Fiber.yield
            MOVE.call
            STAYS.call(:fiber, "Desk#in_fiber")
          end

          def drives
            fiber = Fiber.new { in_fiber }
            fiber.resume
            MOVE.call
            STAYS.call(:beside, "Desk#drives")
            fiber.resume
            STAYS.call(:driven, "Desk#drives")
          end

          # It goes on without a traced call.
          def moves(name)
            MOVE.call
            STAYS.call(name, "Desk#moves")
          end
        end

        # Waits until it goes on on another native thread.
        MOVE = lambda do
          began = Thread.current.native_thread_id
          sleep 0.0005 until Thread.current.native_thread_id != began
        end
        #{stays}
        #{ready}
        #{keepers}
        queue = Queue.new
        many = Array.new(50) { Thread.new { loop { desk.step; desk.inner { queue.pop(timeout: 0.003) } } } }
        Thread.new { desk.moves(:moved) }.join
        Thread.new { desk.moves(:again) }.join
        Thread.new { desk.drives }.join if #{fibers_move}
        (many + keepers).each(&:kill).each(&:join)
        parked = Array.new(50) { Thread.new { desk.pops(queue) } }
        sleep 0.01 until queue.num_waiting == 50
        # The native threads wait for work. The main thread has one of its own.
        natives = Dir.children("/proc/self/task").map { |one| [one.to_i, nil] }.to_h
        Gate.stage(:parked, natives)
        natives = nil
        50.times { queue << 1 }
        parked.each(&:join)
        parked = nil
        4.times { GC.start }
        Gate.stage(:ended, Thread.current.native_thread_id => nil)
        Gate.done
      RUBY
      [:moved, :again, *(%i[beside fiber driven] if fibers_move)].each { |stage| look_at(run, stage) }
      found = look(run, :parked, all: false)
      expect(found.size).to be >= 2
      look(run, :ended, all: false)
      run.finish
    end

    it "is right in a forked child, whose only thread is one that shared a native thread" do
      run = start(<<~RUBY, fields, env: shared)
        #{desk}
        class Desk
          def forks
            fork do
              step
              $stdout.puts("child \#{Process.pid}")
              $stdout.flush
              Gate.open(:traced)
              Gate.on(:function__here)
              Gate.flushed(1)
              in_child
            end
            STAYS.call(:parent, "Desk#forks")
          end

          def in_child
            sleep 0.001
            STAYS.call(:child, "Desk#in_child")
          end
        end
        #{stays}
        #{ready}
        queue = Queue.new
        5.times { Thread.new { desk.pops(queue) } }
        sleep 0.001 until queue.num_waiting == 5
        Thread.new { desk.forks }.join
        Gate.done
      RUBY
      child, of_child = trace_child(run, fields)
      look_at(of_child, :child, pid: child)
      of_child.tracer.finish
      look_at(run, :parent)
      run.finish
    end

    it "leads to functions of the program whenever the process is stopped" do
      run = start(<<~RUBY, fields, env: shared)
        #{desk}
        class Desk
          def works
            sleep 0.0005
            500.times { nil }
          end

          def fiber = Fiber.new { works; Fiber.yield; works }.tap(&:resume).resume
        end
        #{ready}
        #{keepers}
        # These threads make no traced call.
        6.times { Thread.new { loop { sleep 0.0005; 2000.times { nil } } } }
        6.times { Thread.new { loop { #{fibers_move} && rand < 0.5 ? desk.fiber : desk.works } } }
        Thread.new { loop { Thread.new { desk.works }.tap { sleep 0.003 }.kill.join } }
        Gate.open(:enough)
        Gate.done
      RUBY
      await("a record for each native thread") { records(run).size >= 2 }
      here = Tracing::Here.new(run.target.pid)
      found = Array.new(300) do
        sleep(rand / 200)
        stopped(run.target.pid) { records(run).values.uniq.map { |record| here.function(record) } }
      end.flatten
      expect(found.compact.uniq - %w[Desk#works Desk#fiber (probescope)]).to be_empty
      expect(found).to include("Desk#works", nil)
      run.open(:enough)
      run.finish
    end
  end
end
