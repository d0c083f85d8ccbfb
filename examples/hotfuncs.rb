# frozen_string_literal: true

# A parcel service with a checksum in Ruby, and other work.
#
#   ruby examples/hotfuncs.rb            # Crc32.of in pure Ruby
#   ruby examples/hotfuncs.rb --fixed    # the same checksum from Zlib, in C
#
# A reader would not expect it to be slow: it is short, correct, and called once a parcel. A tracer
# shows at once how much of the CPU it takes:
#
#   probescope run -- ruby examples/hotfuncs.rb
#   sudo probescope hot -p PID
require "json"
require "optparse"
require "zlib"

# CRC-32 as in IEEE 802.3, with one table lookup for each byte.
class Crc32
  TABLE = Array.new(256) do |n|
    8.times { n = n.odd? ? 0xedb88320 ^ (n >> 1) : n >> 1 }
    n
  end.freeze

  def of(data)
    crc = 0xffffffff
    data.each_byte { |byte| crc = TABLE[(crc ^ byte) & 0xff] ^ (crc >> 8) }
    crc ^ 0xffffffff
  end
end

# The same function from the standard library.
class FastCrc32
  def of(data) = Zlib.crc32(data)
end

# Takes parcels in, checks them and writes labels.
class Depot
  CITIES = %w[Aachen Bergen Cork Delft Evora Florence Ghent Haarlem].freeze

  attr_reader :parcels

  def initialize(checksum)
    @checksum = checksum
    @parcels = 0
  end

  # One unit of work: each method below is called once.
  def handle
    record = receive(@parcels += 1)
    stamped = stamp(record)
    label(sort(stamped))
  end

  def receive(number)
    items = Array.new(60) { |i| { sku: "SKU-#{number}-#{i}", grams: (number * 31 + i * 17) % 900 } }
    { number: number, to: CITIES[number % CITIES.size], items: items }
  end

  def stamp(record)
    body = JSON.generate(record)
    { record: record, crc: @checksum.of(body) }
  end

  def sort(stamped)
    stamped[:record][:items] = stamped[:record][:items].sort_by { |item| [item[:grams], item[:sku]] }
    stamped
  end

  def label(stamped)
    lines = stamped[:record][:items].map { |item| format("%-24s %6.3f kg", item[:sku], item[:grams] / 1e3) }
    "#{stamped[:record][:to]} #{stamped[:crc].to_s(16)}\n#{lines.join("\n")}"
  end
end

# --clock: the CPU time of each method by its own clock, without callees. This is the truth for a
# tracer's shares. It costs a microsecond a call, so it is only used on request.
class Clock
  def initialize
    @self_ns = Hash.new(0)
    @callees = [0]
  end

  def watch(object, *methods)
    clock = self
    object.singleton_class.prepend(Module.new do
      methods.each do |name|
        label = "#{object.class}##{name}"
        define_method(name) { |*args| clock.time(label) { super(*args) } }
      end
    end)
  end

  def time(label)
    start = now
    @callees.push(0)
    yield
  ensure
    elapsed = now - start
    @self_ns[label] += elapsed - @callees.pop
    @callees[-1] += elapsed
  end

  def to_s = @self_ns.sort_by { -_2 }.map { |label, ns| format("clock %s=%.3fs\n", label, ns / 1e9) }.join

  private

  def now = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID, :nanosecond)
end

options = { parcels: Float::INFINITY }
OptionParser.new("usage: ruby examples/hotfuncs.rb [options]   " \
                 "(Ctrl-C stops it, kill -USR1 prints its counters)") do |parser|
  parser.on("--fixed", "take the checksum from Zlib")
  parser.on("--clock", "print the CPU time of each method, by its own clock")
  parser.on("--parcels N", Integer, "stop after N parcels")
  parser.on("--rate N", Float, "at most N parcels a second, so that both do the same work")
  parser.on("--seconds S", Float, "stop after S seconds")
end.parse!(into: options)

checksum = options[:fixed] ? FastCrc32.new : Crc32.new
depot = Depot.new(checksum)
own = Clock.new
if options[:clock]
  own.watch(checksum, :of)
  own.watch(depot, :handle, :receive, :stamp, :sort, :label)
end
clocks = [Process::CLOCK_PROCESS_CPUTIME_ID, Process::CLOCK_MONOTONIC]
started = clocks.map { |id| Process.clock_gettime(id) }
spent = -> { clocks.zip(started).map { |id, before| Process.clock_gettime(id) - before } }

report = lambda do
  $stdout.write(format("parcels=%d cpu=%.3fs wall=%.3fs\n", depot.parcels, *spent.call), own.to_s)
end

# A signal may come in the middle of a write, so the handler only sets a flag.
stopped = asked = false
%w[INT TERM].each { |signal| trap(signal) { stopped = true } }
trap("USR1") { asked = true }
Thread.new { sleep(options[:seconds]) && stopped = true } if options[:seconds]
$stdout.sync = true
puts "hotfuncs: pid #{Process.pid}", "ready"

# Waits until the next parcel is due.
wait = lambda do
  early = (depot.parcels / options[:rate]) - spent.call.last
  sleep(early) if early.positive?
end

until stopped || depot.parcels >= options[:parcels]
  depot.handle
  wait.call if options[:rate]
  next unless asked

  asked = false
  report.call
end
report.call
