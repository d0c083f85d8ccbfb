# frozen_string_literal: true

require "json"

# What a program counts about itself while it runs: cumulative counters, written down with the time after each unit of work. Each
# thread has a page of its own, so that no counter is shared.
#
# A file PID.json in the given directory has {"pages": [[[ns, {counter: value}], ...], ...]}, times in ns of CLOCK_MONOTONIC.
# "calls:NAME", "raised", "things", "texts", "requests:ROUTE" count; "wall:NAME" and "cpu:NAME" are ns of the wall clock and of the
# thread's CPU clock that calls of NAME took.
class Ledger
  # One thread's counters.
  class Page
    def initialize
      @counters = Hash.new(0)
      @notes = []
    end

    attr_reader :notes

    def add(counter, number = 1) = @counters[counter] += number

    # The block is the call of a function named so.
    def time(name)
      cpu = Ledger.cpu
      wall = Ledger.wall
      yield
      wall = Ledger.wall - wall
      cpu = Ledger.cpu - cpu # what follows allocates, and may collect garbage
      @counters["wall:#{name}"] += wall
      @counters["cpu:#{name}"] += cpu
      @counters["calls:#{name}"] += 1
    end

    def note
      @counters["cpu"] = Ledger.cpu
      @notes << [Ledger.wall, @counters.dup]
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
  def page
    Page.new.tap { |page| @lock.synchronize { @pages << page } }
  end

  # A forked child begins a ledger of its own.
  def forget = @pages.clear

  def write
    path = File.join(@directory, "#{Process.pid}.json")
    File.write("#{path}.new", JSON.generate(pages: @pages.map(&:notes)))
    File.rename("#{path}.new", path)
  end
end
