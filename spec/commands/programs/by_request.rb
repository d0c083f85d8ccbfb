# frozen_string_literal: true

# Runs requests that take turns on one thread, a job on another thread, and work outside of both.
# They run once for each SIGUSR1: GET /a raises 300 times, makes 3000 objects and asks 300 times for a file,
# GET /b a third of that, the job Mail a tenth, and the work outside a twentieth. With the argument
# `burn` the two requests use CPU instead, again and again.
BURNING = ARGV.first == "burn"

class Thing; end

class Shop
  SHARES = {"/a" => 30, "/b" => 10}.freeze

  def call(env)
    share = SHARES.fetch(env["PATH_INFO"])
    10.times do
      BURNING ? burn(share) : work(share)
      Fiber.yield
    end
    nap unless BURNING
    [200, {}, []]
  end

  def work(times)
    times.times { fail_once }
    (10 * times).times { make }
    look(times)
  end

  def look(times) = times.times { File.stat(__FILE__) && Process.ppid }

  def make = Thing.new

  def fail_once
    raise ArgumentError, "known"
  rescue ArgumentError
    nil
  end

  def burn(times) = (times * 5000).times { |i| i }

  def nap = sleep(0.02)
end

$stdout.sync = true
asked = []
trap("USR1") { asked << true }
SHOP = Shop.new
APP = Probescope::Rack.new(SHOP)

def take_turns
  fibers = Shop::SHARES.keys.map do |path|
    Fiber.new do
      body = APP.call("REQUEST_METHOD" => "GET", "PATH_INFO" => path).last
      body.close if body.respond_to?(:close)
      nil
    end
  end
  fibers.select!(&:alive?) while fibers.each { |fiber| fiber.resume if fiber.alive? }.any?(&:alive?)
end

puts "ready"
loop { take_turns } if BURNING
loop do
  sleep 0.01
  next unless asked.pop

  take_turns
  Thread.new { Probescope::Job.run("Mail", system: "spec") { SHOP.work(30) && SHOP.nap } }.join
  SHOP.work(15)
  puts "worked"
end
