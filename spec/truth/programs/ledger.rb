# frozen_string_literal: true

require "json"

# The counters that a program keeps while it runs. They are cumulative, and written down with the
# time after each unit of work. Each thread has its own page, so no counter is shared.
#
# A file PID.json in the given directory has {"pages": [[[ns, {counter: value}], ...], ...]}, with
# times in ns of CLOCK_MONOTONIC. "calls:NAME", "raised" (or "raised_anywhere", with the
# exceptions that the VM's library raises itself), "things", "texts", "looks" (system calls of one
# function), "looks_failed", "asked" (another system call of that function, whose argument is the
# process's number) and "requests:ROUTE" are counts. "work" counts all calls of functions of
# work.rb. "wall:NAME" and "cpu:NAME" are the ns of calls of NAME by the wall clock and by the
# thread's CPU clock, including the call itself. "inner:NAME" is the wall time between the first
# and the last statement of NAME. "off:NAME" is the part of "wall:NAME" in which the thread was
# not on a CPU, and "inner_off:NAME" the part of "inner:NAME" in which it certainly was not.
# "gc:NAME" is the part of "cpu:NAME" that collections took, for functions that make garbage.
# "process:..." are the process's CPU time in ns, its collections, its objects, and the CPU time
# of collections in ns ("process:gc_cpu"; in Python also by the wall clock, "process:gc"). One
# page of a process has these. "fibers" is the number of fibers from the beginning.
class Ledger
  # The counters of one thread.
  class Page
    # ns: a longer pause gets a note at its end.
    PAUSE = 2_000_000

    # process: whether the page has the process's counters, too.
    def initialize(process)
      @counters = Hash.new(0)
      @notes = []
      @process = process
    end

    attr_reader :notes

    def add(counter, number = 1) = @counters[counter] += number

    # The block calls the function with this name, and returns the ns of its body or nil. collects:
    # the function makes garbage, in the only thread that does; the VM has one time for the
    # collections of all threads.
    def time(name, collects: false)
      collections = GC.total_time
      cpu = Ledger.cpu
      wall = Ledger.wall
      inner = yield
      wall = Ledger.wall - wall
      cpu = Ledger.cpu - cpu
      collections = GC.total_time - collections # the next lines allocate, and may start a collection
      @counters["wall:#{name}"] += wall
      @counters["off:#{name}"] += wall - cpu if wall > cpu
      @counters["cpu:#{name}"] += cpu
      @counters["gc:#{name}"] += collections if collects
      note_inner(name, inner, cpu) if inner
      @counters["calls:#{name}"] += 1
    end

    def note
      @counters["cpu"] = Ledger.cpu
      note_process if @process
      @notes << [Ledger.wall, @counters.dup]
    end

    # Writes the last note, when the program has ended.
    def close = @notes << [Ledger.wall, @counters.dup]

    # Writes a note after a pause, in which this thread counted nothing. The process did count:
    # hooks that came in meanwhile allocate objects.
    def resume
      now = Ledger.wall
      return unless @notes.any? && now - @notes.last[0] > PAUSE

      note_process if @process
      @notes << [now, @notes.last[1].merge(@counters.select { |name, _| name.start_with?("process:") })]
    end

    private

    def note_inner(name, inner, cpu)
      @counters["inner:#{name}"] += inner
      @counters["inner_off:#{name}"] += inner - cpu if inner > cpu
    end

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

  # Each thread calls this once.
  def page(process: false)
    Page.new(process).tap { |page| @lock.synchronize { @pages << page } }
  end

  # Begins a new ledger in a forked child.
  def forget = @pages.clear

  def write
    @pages.each(&:close)
    path = File.join(@directory, "#{Process.pid}.json")
    File.write("#{path}.new", JSON.generate(pages: @pages.map(&:notes)))
    File.rename("#{path}.new", path)
  end
end
