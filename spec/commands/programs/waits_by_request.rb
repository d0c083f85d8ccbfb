# frozen_string_literal: true

# Serves requests of two routes at the same time, on a thread each, beside a thread without a request
# and one that a request started, which is in no request either. Works once for each SIGUSR1, and then
# prints how often and for how long each function waited, and for how long of that its thread was ready
# to run and had no CPU: {request => {function => [times, ns, ns]}}.
require "json"

class Shop
  TAKEN = Queue.new
  MILLISECONDS = {"/orders/17" => 30, "/orders/18" => 30, "/slow" => 60}.freeze

  def call(env)
    path = env["PATH_INFO"]
    work(path == "/slow" ? "GET /slow" : "GET /orders/*", MILLISECONDS.fetch(path))
    child = path == "/slow" ? Thread.new { work("", 20) } : nil
    child&.join
    [200, {}, []]
  end

  def work(request, milliseconds)
    answering = IO.popen(["sh", "-c", "while read -r line; do sleep 0.04; echo; done"], "r+")
    10.times do
      naps(request, milliseconds / 1000.0)
      answering.puts
      asks(request, answering)
    end
    answering.close
  end

  def naps(request, seconds)
    began = begins
    sleep seconds
    took(request, "naps", *began)
  end

  def asks(request, answering)
    began = begins
    answering.gets
    took(request, "asks", *began)
  end

  def begins = [delayed, now]

  def took(request, function, delay, began)
    ended = now
    TAKEN << [request, function, ended - began, delayed - delay]
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)

  def delayed = File.read("/proc/thread-self/schedstat").split[1].to_i
end

class Main
  APP = Probescope::Rack.new(Shop.new)

  def serve(path)
    body = APP.call("REQUEST_METHOD" => "GET", "PATH_INFO" => path).last
    body.close if body.respond_to?(:close)
  end

  def work
    serving = Shop::MILLISECONDS.keys.map { |path| Thread.new { serve(path) } }
    alone = Thread.new { Shop.new.work("", 20) }
    [*serving, alone].each(&:join)
    sleep 1.2 # until the waits have names
    puts "waited 1 #{JSON.generate(clocks)}"
  end

  def clocks
    taken = Array.new(Shop::TAKEN.size) { Shop::TAKEN.pop }
    taken.group_by(&:first).transform_values do |same|
      same.group_by { |one| one[1] }.transform_values do |all|
        [all.size, all.sum { |one| one[2] }, all.sum(&:last)]
      end
    end
  end

  def run
    asked = []
    trap("USR1") { asked << true }
    puts "ready"
    loop do
      sleep 0.01
      Thread.new { work }.join if asked.pop
    end
  end
end

$stdout.sync = true
Main.new.run
