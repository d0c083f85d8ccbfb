# frozen_string_literal: true

# A shipping desk where every thread waits for one lock.
#
#   ruby examples/onelock.rb            # asks the carrier's server while it holds the lock
#   ruby examples/onelock.rb --fixed    # asks before it takes the lock
#
# Packers ship orders. Each order gets a number from the carrier's server, which answers after 5 ms,
# and the desk writes the number down under a lock. A clerk looks orders up under the same lock. The
# code is short and correct, and the CPU is idle, so no profile shows why more packers do not ship
# more orders. A tracer shows what the threads wait for, and which function ends the wait:
#
#   probescope run -- ruby examples/onelock.rb
#   sudo probescope waits -p PID
require "optparse"
require "socket"

# A packer's connection to the carrier's server.
class Carrier
  ANSWERS_AFTER = 0.005

  # Starts a server in a process of its own, which ends with this one. Returns the connections.
  def self.connect(count)
    ours, theirs = Array.new(count) { UNIXSocket.pair }.transpose
    fork do
      %w[INT TERM].each { |signal| trap(signal, "IGNORE") }
      ours.each(&:close)
      theirs.map { |line| Thread.new { serve(line) } }.each(&:join)
    end
    theirs.each(&:close)
    ours.map { |line| new(line) }
  end

  def self.serve(line)
    while (order = line.gets)
      sleep ANSWERS_AFTER
      line.puts "CARRIER-#{order}"
    end
  rescue SystemCallError
    # The desk has ended.
  end

  def initialize(line) = @line = line

  def number(order)
    @line.puts(order)
    @line.gets.chomp
  end
end

# How often the threads in one method found the lock taken, and how long it took them to get it, by
# the program's own clock: the truth for a tracer's figures.
class Waits
  attr_reader :count, :seconds

  def initialize(lock)
    @lock = lock
    @count = 0
    @seconds = 0.0
  end

  def asks = [now, @lock.locked?]

  # Called with the lock held.
  def got((began, taken))
    @seconds += now - began
    @count += 1 if taken
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

# The numbers of all orders that were shipped.
class Desk
  attr_reader :finds, :ship_waits, :find_waits

  def initialize
    @lock = Mutex.new
    @numbers = []
    @finds = 0
    @ship_waits, @find_waits = Waits.new(@lock), Waits.new(@lock)
  end

  def orders = @numbers.size

  def pack = sleep(0.002)

  def ship(order, carrier)
    asked = @ship_waits.asks
    @lock.synchronize do
      @ship_waits.got(asked)
      @numbers << carrier.number(order)
    end
  end

  # Returns the number of the newest order.
  def find
    asked = @find_waits.asks
    @lock.synchronize do
      @find_waits.got(asked)
      @finds += 1
      @numbers.last
    end
  end
end

# The same, without the lock while the carrier answers.
class FixedDesk < Desk
  def ship(order, carrier)
    number = carrier.number(order)
    asked = @ship_waits.asks
    @lock.synchronize do
      @ship_waits.got(asked)
      @numbers << number
    end
  end
end

options = { packers: 4, orders: nil }
OptionParser.new("usage: ruby examples/onelock.rb [options]   " \
                 "(Ctrl-C stops it, kill -USR1 prints its counters)") do |parser|
  parser.on("--fixed", "ask the carrier before taking the lock")
  parser.on("--packers N", Integer, "threads that ship orders (#{options[:packers]})")
  parser.on("--orders N", Integer, "stop after N orders")
  parser.on("--seconds S", Float, "stop after S seconds")
end.parse!(into: options)

desk = (options[:fixed] ? FixedDesk : Desk).new
carriers = Carrier.connect(options[:packers])
clocks = [Process::CLOCK_PROCESS_CPUTIME_ID, Process::CLOCK_MONOTONIC]
started = clocks.map { |id| Process.clock_gettime(id) }
spent = -> { clocks.zip(started).map { |id, before| Process.clock_gettime(id) - before } }

report = lambda do
  figures = [desk.ship_waits, desk.find_waits].flat_map { |waits| [waits.count, waits.seconds] }
  $stdout.write(format("orders=%d finds=%d ship_waits=%d ship_waited=%.3fs find_waits=%d find_waited=%.3fs " \
                       "cpu=%.3fs wall=%.3fs\n", desk.orders, desk.finds, *figures, *spent.call))
end

# The main thread sleeps until there is a word in this queue. A handler may add one.
words = Queue.new
%w[INT TERM].each { |signal| trap(signal) { words << :stop } }
trap("USR1") { words << :report }
Thread.new { sleep(options[:seconds]) && words << :stop } if options[:seconds]
$stdout.sync = true
puts "onelock: pid #{Process.pid}, #{options[:packers]} packers", "ready"

packers = carriers.map.with_index(1) do |carrier, first|
  Thread.new do
    first.step(by: carriers.size, to: options[:orders]) do |order|
      desk.pack
      desk.ship(order, carrier)
    end
  end
end
clerk = Thread.new do
  while packers.any?(&:alive?)
    desk.find
    sleep 0.01
  end
end
Thread.new { [*packers, clerk].each(&:join) && words << :stop }
report.call while words.pop == :report
report.call
