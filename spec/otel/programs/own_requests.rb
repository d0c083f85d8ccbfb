# frozen_string_literal: true

# An application without OpenTelemetry. It forks two processes, whose requests and jobs run
# concurrently on threads and fibers. Each makes slow calls, and a call's name has the number of its
# request's worker.
#
#   ruby own_requests.rb COUNT REQUESTS FILE
#
# COUNT workers of each kind make REQUESTS requests each. FILE gets the program's own record of the
# calls of each request: support/parents.rb. Every tenth request comes in a trace that is not
# sampled. Every second worker's requests are jobs.
require "io/wait"
require "json"
require "securerandom"

COUNT, REQUESTS = ARGV.first(2).map(&:to_i)
KNOWN = [] # rubocop:disable Style/MutableConstant
# Parent of each child: a call, a request, or the request's caller.
SHAPE = {"request" => "caller", "outer" => "request", "inner" => "outer", "lookup" => "outer",
         "row" => "lookup", "job" => "request", "task" => "job"}.freeze

# Only these calls are spans.
WORK = File.join(__dir__, "own_work.rb")
module Work
  (2 * COUNT).times do |i|
    class_eval(<<~METHODS, WORK, 1)
      def self.outer#{i}(pause)
        inner#{i}
        pause.call
        lookup#{i}(pause)
      end

      def self.lookup#{i}(pause)
        pause.call
        row#{i}
      end

      def self.inner#{i} = sleep(0.0011)
      def self.row#{i} = sleep(0.0011)
      def self.task#{i} = sleep(0.0011)
    METHODS
  end
end

# Worker i of this process. pause lets the other workers run.
def worker(i, pause)
  work = lambda do
    Work.public_send("outer#{i}", pause)
    pause.call
    Probescope::Job.run("job#{i}", system: "inline") { Work.public_send("task#{i}") }
  end
  app = Probescope::Rack.new(->(_) { work.call && [200, {}, []] })
  REQUESTS.times do |n|
    if i.even?
      ask(app, i, n)
    else
      Probescope::Job.run("request#{i}", system: "spec", traceparent: came(i, n), &work)
    end
  end
end

def ask(app, i, number)
  app.call("REQUEST_METHOD" => "GET", "PATH_INFO" => "/request#{i}", "probescope.route" => "/request#{i}",
           "rack.url_scheme" => "http", "HTTP_TRACEPARENT" => came(i, number))
end

# Returns a request's header, and records it.
def came(i, number)
  sampled = number % 10 != 9
  trace, span = [16, 8].map { |size| SecureRandom.hex(size) }
  KNOWN << {number: i, sampled: sampled, trace: trace, spans: {caller: span}}
  "00-#{trace}-#{span}-0#{sampled ? 1 : 0}"
end

def run
  threads = Array.new(COUNT) { |i| Thread.new { worker(i, -> { Thread.pass }) } }
  fibers = Array.new(COUNT) { |i| Fiber.new { worker(COUNT + i, -> { Fiber.yield }) } }
  fibers = fibers.each(&:resume).select(&:alive?) while fibers.any?
  threads.each(&:join)
end

$stdout.sync = true
go, going = IO.pipe
children = Array.new(2) do
  answer, answering = IO.pipe
  pid = fork do
    going.close
    # Hooks come in while Ruby runs.
    nil until go.wait_readable(0.05)
    run
    answering.write(JSON.generate(KNOWN))
    answering.close
    exit!(0)
  end
  answering.close
  [pid, answer]
end
puts "children #{children.map(&:first).join(" ")}", "ready"
$stdin.gets
going.close
File.write(ARGV[2],
           JSON.generate(shape: SHAPE, requests: children.flat_map { |_, answer| JSON.parse(answer.read) }))
puts "done"
$stdin.gets
