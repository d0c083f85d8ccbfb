# frozen_string_literal: true

require "json"

# What a program counts about itself while it runs: cumulative counters, written down with the time
# after each unit of work. Each thread has a page of its own, so that no counter is shared.
#
# A file PID.json in the given directory has {"pages": [[[ns, {counter: value}], ...], ...]}, times
# in ns of CLOCK_MONOTONIC. "calls:NAME", "raised" (with what the VM's library raises for itself:
# "raised_anywhere"), "things", "texts", "requests:ROUTE" count; "work" counts all calls of
# functions of work.rb; "wall:NAME" and "cpu:NAME" are ns of the wall clock and of the thread's CPU
# clock that calls of NAME took, with what the call itself takes. "inner:NAME" is the wall clock
# between the first and the last statement of NAME. "gc:NAME", of functions that make garbage, is
# the part of "cpu:NAME" that collections of garbage took. "process:..." are what the process
# counts: its CPU time in ns, the collections, the objects, and the CPU time of collections in ns,
# "process:gc_cpu"; in Python that by the wall clock as well, "process:gc". One page of a process
# has them. "fibers" is how many there are from the beginning.
class Ledger
  # One thread's counters.
  class Page
    # ns: a pause that is worth a note at its end.
    PAUSE = 2_000_000

    # process: it has the process's counters, too.
    def initialize(process)
      @counters = Hash.new(0)
      @notes = []
      @process = process
    end

    attr_reader :notes

    def add(counter, number = 1) = @counters[counter] += number

    # The block is the call of a function named so, which returns the ns of its body or nil.
    # collects: it makes garbage, in the only thread that does; the VM tells the time of collections
    # of all threads together.
    def time(name, collects: false)
      collections = GC.total_time
      cpu = Ledger.cpu
      wall = Ledger.wall
      inner = yield
      wall = Ledger.wall - wall
      cpu = Ledger.cpu - cpu
      collections = GC.total_time - collections # what follows allocates, and may collect garbage
      @counters["wall:#{name}"] += wall
      @counters["cpu:#{name}"] += cpu
      @counters["gc:#{name}"] += collections if collects
      @counters["inner:#{name}"] += inner if inner
      @counters["calls:#{name}"] += 1
    end

    def note
      @counters["cpu"] = Ledger.cpu
      note_process if @process
      @notes << [Ledger.wall, @counters.dup]
    end

    # When the program has ended.
    def close = @notes << [Ledger.wall, @counters.dup]

    # After a pause, in which this thread counted nothing. The process did: hooks that came in
    # meanwhile make objects.
    def resume
      now = Ledger.wall
      return unless @notes.any? && now - @notes.last[0] > PAUSE

      note_process if @process
      @notes << [now, @notes.last[1].merge(@counters.select { |name, _| name.start_with?("process:") })]
    end

    private

    def note_process
      @counters["process:cpu"] = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :nanosecond)
      @counters["process:collections"] = GC.count
      @counters["process:gc_cpu"] = GC.total_time
      @counters["process:objects"] = GC.stat(:total_allocated_objects) - Probescope::Native.objects_left_out
    end
  end

  def self.wall = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
  def self.cpu = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID, :nanosecond)

  def initialize(directory)
    @directory = directory
    @pages = []
    @lock = Mutex.new
  end

  # To be called once by each thread.
  def page(process: false)
    Page.new(process).tap { |page| @lock.synchronize { @pages << page } }
  end

  # A forked child begins a ledger of its own.
  def forget = @pages.clear

  def write
    @pages.each(&:close)
    path = File.join(@directory, "#{Process.pid}.json")
    File.write("#{path}.new", JSON.generate(pages: @pages.map(&:notes)))
    File.rename("#{path}.new", path)
  end
end
