# frozen_string_literal: true

# ruby temperament.rb NAME SEED DIRECTORY: does known work in this temperament until SIGTERM, then
# writes its ledger (ledger.rb). Prints "ready" when its threads and processes run.
require_relative "../../../lib/probescope/latency"
require_relative "ledger"
require_relative "work"

# Each method distributes the work in its own way.
class Temperament
  def initialize(ledger, seed)
    @ledger = ledger
    @seed = seed
    @over = false
    trap("TERM") { @over = true }
  end

  def cpu
    work = new_work
    ready
    work.unit until @over
  end

  def c_calls
    work = new_work
    ready
    work.c_unit until @over
  end

  # Releases the VM lock for calls of 0.1 ms and 2 ms.
  def system_calls
    work = new_work
    ready
    until @over
      work.unit
      20.times { File.stat(__FILE__) }
      sleep 0.0001
      work.unit
      sleep 0.002
    end
  end

  def slow_calls
    work = new_work
    ready
    until @over
      work.unit
      work.linger
    end
  end

  # Makes much garbage.
  def garbage
    work = new_work
    ready
    until @over
      work.unit
      work.litter
    end
  end

  # Four workers. The main thread hands out jobs of about 1, 5 or 20 ms, and waits most of the
  # time.
  def pool
    jobs = Thread::SizedQueue.new(8)
    units = [1, 5, 20][@seed % 3]
    workers = in_threads(4) { |work| units.times { work.unit } while jobs.pop }
    page = @ledger.page(process: true)
    ready
    until @over
      jobs << true
      page.note
    end
    jobs.close
    workers.each(&:join)
  end

  # Four workers without a pause, and a main thread that waits for their end.
  def parked
    workers = in_threads(4, process: true) { |work| work.unit until @over }
    ready
    workers.each(&:join)
  end

  # Eight threads. Another thread gives one of them a job every 0.2 s. The main thread waits for
  # their end.
  def served
    jobs = Thread::Queue.new
    workers = in_threads(8) { |work| work.unit while jobs.pop }
    page = @ledger.page(process: true)
    Thread.new do
      until @over
        jobs << true
        sleep 0.2
        page.note
      end
      jobs.close
    end
    ready
    workers.each(&:join)
  end

  # Twelve threads that get work in turns, one every 80 ms, and run for 12 ms after their work.
  def crowd
    queues = Array.new(12) { Thread::Queue.new }
    mine = queues.dup
    workers = in_threads(12) do |work, queue = mine.shift|
      while queue.pop
        work.unit
        work.linger
      end
    end
    page = @ledger.page(process: true)
    ready
    queues.cycle do |queue|
      break if @over

      queue << true
      sleep 0.08
      page.note
    end
    queues.each(&:close)
    workers.each(&:join)
  end

  def bursts
    work = new_work
    ready
    until @over
      10.times { work.unit }
      work.linger
      sleep 0.3
    end
  end

  # A hundred fibers in turns. Each switch happens in the middle of the work.
  def fibers
    page = @ledger.page(process: true)
    all = Array.new(100) do |i|
      work = Work.new(page, Random.new(@seed + i))
      Fiber.new { loop { work.unit && Fiber.yield } }
    end
    page.add("fibers", all.size)
    ready
    all.cycle do |fiber|
      break if @over

      fiber.resume
    end
  end

  def forks
    children = Array.new(2) do |i|
      fork do
        @ledger.forget
        work = Work.new(@ledger.page(process: true), Random.new(@seed + i))
        until @over
          work.unit
          sleep 0.001
          work.linger
        end
        @ledger.write
        exit!(0)
      end
    end
    ready
    sleep 0.01 until @over
    children.each do |pid|
      Process.kill(:TERM, pid)
      Process.wait(pid)
    end
  end

  def deep_stacks
    work = new_work
    ready
    descend(300) { work.unit until @over }
  end

  private

  def new_work = Work.new(@ledger.page(process: true), Random.new(@seed))

  # process: the first thread notes the process's counters.
  def in_threads(count, process: false, &body)
    started = Thread::Queue.new
    threads = Array.new(count) do |i|
      Thread.new do
        work = Work.new(@ledger.page(process: process && i.zero?), Random.new(@seed + i))
        started << i
        body.call(work)
      end
    end
    count.times { started.pop }
    threads
  end

  def descend(depth, &block) = depth.zero? ? block.call : descend(depth - 1, &block)

  def ready
    puts "ready"
    $stdout.flush
  end
end

# With several programs at once, the low priority leaves the CPU to the starting tracers.
Process.setpriority(Process::PRIO_PROCESS, 0, 15) if ENV["TRUTH_GROUP"]
# Each method has its own probe, which costs nothing without a tracer.
Probescope::Latency.trace(Work, :step)
Probescope::Latency.trace(Work, :nap)
name, seed, directory = ARGV
ledger = Ledger.new(directory)
Temperament.new(ledger, Integer(seed)).public_send(name)
ledger.write
