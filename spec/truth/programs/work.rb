# frozen_string_literal: true

require "zlib"
require_relative "../../../lib/probescope/rack"

TruthError = Class.new(StandardError)
Thing = Class.new

# Units of known work. The page also has every figure that a command shows.
class Work
  # Calls of C: about 0.05 ms, 0.5 ms and 5 ms each. Pairs of number and bytes.
  CALLS = [[6, 200_000], [1, 2_000_000], [1, 10_000_000]].freeze
  SITE = Probescope::Rack.new(->(env) { [env["PATH_INFO"] == "/none" ? 404 : 200, {}, ["truth"]] })

  # random: decides how the work is divided.
  def initialize(page, random)
    @page = page
    @step = 1000 + random.rand(4000)
    @weigh = 7000 - @step
    @raises = 1 + random.rand(3)
    @depth = 1 + random.rand(20)
    @things = 5 + random.rand(20)
    @looks = 1 + @things % 3
    @calls, @bytes = CALLS[random.rand(CALLS.size)]
    @number = 0
  end

  def unit
    @page.resume
    @page.time("step") { step(@step) }
    @page.time("weigh") { weigh(@weigh) }
    @raises.times { fail_and_rescue }
    make(@things)
    tell
    serve
    look(@looks)
    @page.add("work", 9 + @raises * (2 + @depth))
    @page.note
  end

  # Calls C for most of the time. The next calls are where the VM makes its first check after the C
  # call.
  def c_unit
    @data ||= "\0" * @bytes
    @page.time("crunch") { crunch(@data) }
    @page.time("trifle") { trifle }
    @page.add("work", 3)
    @page.note
  end

  # Takes longer than 10 ms, without CPU.
  def linger
    @page.time("nap") { nap }
    @page.add("work", 2)
    @page.note
  end

  def litter
    @page.time("waste", collects: true) { waste }
    @page.add("work", 2)
    @page.note
  end

  private

  # These return the ns of their bodies.
  def step(n)
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
    sum = 0
    while n > 0
      sum += n ^ 21
      n -= 1
    end
    Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - began
  end

  def weigh(n)
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
    sum = 1.5
    while n > 0
      sum = sum * 0.5 + n
      n -= 1
    end
    Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - began
  end

  def dig(depth)
    raise TruthError, "known" if depth.zero? # raised

    dig(depth - 1)
  end

  def fail_and_rescue
    dig(@depth)
  rescue TruthError
    @page.add("raised")
    @page.add("raised_anywhere")
  end

  def make(n)
    while n > 0
      Thing.new # made
      @page.add("things")
      n -= 1
    end
  end

  def tell
    dig(1)
  rescue TruthError => e
    @page.add("raised")
    @page.add("raised_anywhere")
    e.backtrace # told
    @page.add("texts")
  end

  def serve
    @number += 1
    path = (@number % 5).zero? ? "/none" : "/orders/#{@number}"
    SITE.call({"REQUEST_METHOD" => "GET", "PATH_INFO" => path})
    @page.add((@number % 5).zero? ? "requests:(not found)" : "requests:/orders/*")
  end

  # Three system calls each time, one of which fails.
  def look(times)
    while times > 0
      File.stat(__FILE__)
      File.exist?("/nowhere/at/all")
      @page.add("looks", 2)
      @page.add("looks_failed")
      Process.getpriority(Process::PRIO_PROCESS, Process.pid)
      @page.add("asked")
      times -= 1
    end
  end

  # Makes arrays in cycles, which only the garbage collector frees.
  def waste
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
    n = 500
    while n > 0
      one = []
      one << [one]
      n -= 1
    end
    Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - began
  end

  def crunch(data)
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
    @calls.times { Zlib.crc32(data) }
    Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - began
  end

  def trifle = nil

  def nap
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
    sleep(0.012)
    Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - began
  end
end
