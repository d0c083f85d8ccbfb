# frozen_string_literal: true

# For bench/latency.rb: prints the ns of a call of a plain method, of a method with a latency probe,
# and of one behind a wrapper in C, without a tracer. For each line on stdin it prints the first two
# again, under a tracer. Each is the median of short turns.
require "probescope"
require "super"
require_relative "../statistics"

class Shop
  def plain(value) = value
  def traced(value) = value
  def wrapped(value) = value
  prepend Wrapper
end

SHOP = Shop.new
COUNT = 2000
NAME = Probescope::Latency.trace(Shop, :traced)
WAYS = {
  plain: lambda do
    i = 0
    while i < COUNT
      SHOP.plain(i)
      i += 1
    end
  end,
  traced: lambda do
    i = 0
    while i < COUNT
      SHOP.traced(i)
      i += 1
    end
  end,
  wrapped: lambda do
    i = 0
    while i < COUNT
      SHOP.wrapped(i)
      i += 1
    end
  end
}.freeze

def turn(way)
  start = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
  way.call
  (Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - start) / COUNT.to_f
end

def figures(*ways)
  turns = Array.new(501) { ways.map { |way| turn(WAYS.fetch(way)) } }
  turns.transpose.map { |all| Statistics.median(all).round(1) }.join(" ")
end

$stdout.sync = true
figures(:plain, :traced, :wrapped) # gives a JIT time to compile
puts "idle #{figures(:plain, :traced, :wrapped)}"
while (line = $stdin.gets)
  sleep 0.01 until Probescope::Latency.probes.fetch(NAME)[:listened] == (line == "attached\n")
  3.times { figures(:plain, :traced) } if line == "detached\n" # the JIT compiles again
  puts "#{line.chomp} #{figures(:plain, :traced)}"
end
