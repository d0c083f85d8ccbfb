# frozen_string_literal: true

require "zlib"

TruthError = Class.new(StandardError)
Thing = Class.new

# Units of known work. Every figure that a command tells of it is in the page, too.
class Work
  BYTES = ("truth" * 40_000).freeze

  # random: decides how the work is shared out.
  def initialize(page, random)
    @page = page
    @step = 1000 + random.rand(4000)
    @weigh = 7000 - @step
    @raises = 1 + random.rand(3)
    @depth = 1 + random.rand(20)
    @things = 5 + random.rand(20)
  end

  def unit
    @page.time("step") { step(@step) }
    @page.time("weigh") { weigh(@weigh) }
    @raises.times { fail_and_rescue }
    make(@things)
    tell
    @page.note
  end

  # C takes most of the time, and what follows is called where the VM looks up for the first time after it.
  def c_unit
    @page.time("crunch") { crunch }
    @page.time("trifle") { trifle }
    @page.note
  end

  # Longer than 10 ms, without CPU.
  def linger
    @page.time("nap") { nap }
    @page.note
  end

  private

  def step(n)
    sum = 0
    while n > 0
      sum += n ^ 21
      n -= 1
    end
    sum
  end

  def weigh(n)
    sum = 1.5
    while n > 0
      sum = sum * 0.5 + n
      n -= 1
    end
    sum
  end

  def dig(depth)
    raise TruthError, "known" if depth.zero? # raised

    dig(depth - 1)
  end

  def fail_and_rescue
    dig(@depth)
  rescue TruthError
    @page.add("raised")
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
    e.backtrace # told
    @page.add("texts")
  end

  def crunch = 6.times { Zlib.crc32(BYTES) }
  def trifle = nil
  def nap = sleep(0.012)
end
