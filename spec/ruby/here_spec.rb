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
            # At its first event the kernel takes the parent's tracer out of the child.
            step
            Gate.off(:function__here)
            $stdout.puts("child \#{Process.pid}")
            $stdout.flush
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
    child = run.target.await_line(/^child (\d+)/)[1].to_i
    both = { stats__done: %i[sequence rows dropped] }.merge(fields)
    of_child = Tracing::Run.new(run.target, tracer(Tracing.text(both), pid: child), run.directory, both)
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

  it "names nothing where Ruby's threads share native threads" do
    skip "of another Ruby: 3.3 and later" if RUBY_VERSION < "3.3"
    run = start(<<~RUBY, fields, env: { "RUBY_MN_THREADS" => "1" })
      #{desk}
      #{ready}
      queue = Queue.new
      threads = Array.new(50) { Thread.new { loop { desk.step; desk.inner { queue.pop(timeout: 0.01) } } } }
      Gate.open(:stop)
      Gate.done
    RUBY
    await("the first events") { records(run).any? }
    stopped(run.target.pid) do
      here = Tracing::Here.new(run.target.pid)
      expect(records(run).values.map { |record| here.stack(record) }).to all(eq(0))
    end
    run.open(:stop)
    run.finish
  end
end
