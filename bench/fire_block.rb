# frozen_string_literal: true

# For bench/fire.rb: prints the ns of a fire with arguments, of a fire with a block, and of an empty
# C function with that block, without a tracer. Each is the median of short turns.
require "probescope"
require_relative "statistics"

CHECKOUT = Probescope::Provider.define("shop") { probe :checkout, :string, :integer }[:checkout]
NOTHING = Probescope::Native
COUNT = 2000

def turn
  start = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
  yield
  (Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - start) / COUNT.to_f
end

def fire
  i = 0
  while i < COUNT
    CHECKOUT.fire("a", i)
    i += 1
  end
end

def fire_block
  i = 0
  while i < COUNT
    CHECKOUT.fire { ["a", i] }
    i += 1
  end
end

def call_nothing
  i = 0
  while i < COUNT
    NOTHING.nothing { ["a", i] }
    i += 1
  end
end

turns = Array.new(501) { [turn { fire }, turn { fire_block }, turn { call_nothing }] }
puts turns.transpose.map { |way| Statistics.median(way).round(1) }.join(" ")
