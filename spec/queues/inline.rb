# frozen_string_literal: true

# ActiveJob alone, in one process: jobs that run at once, within a request, and on its own threads.
# Prints the events of its own subscribers, and the exceptions of each job.
require "bundler/setup"
$LOAD_PATH.unshift(File.expand_path("../../lib", __dir__))
require "probescope/auto"
require "active_job"
require "io/wait"
require "json"

LOCK = Mutex.new
TOLD = {tries: Hash.new(0), raised: Hash.new(0)} # rubocop:disable Style/MutableConstant

def refuse(name, times)
  LOCK.synchronize { TOLD[:raised][name] += times }
  times.times do
    raise ArgumentError, "known"
  rescue ArgumentError
    nil
  end
end

::ActiveJob::Base.logger = nil
::ActiveJob::Base.include Probescope::ActiveJob

# Subscribers get another event for failures that retry_on handles.
ActiveSupport::Notifications.subscribe(/\A(perform|enqueue_retry|discard)\.active_job\z/) do |event|
  failed = event.name.start_with?("perform") ? !event.payload[:exception].nil? : true
  change = event.name.start_with?("perform") ? 1 : 0
  name = event.payload[:job].class.name
  LOCK.synchronize do
    TOLD[:tries]["#{name} #{failed ? 500 : 200}"] += 1
    TOLD[:tries]["#{name} 200"] -= 1 if change.zero?
  end
end

class Label < ::ActiveJob::Base
  self.queue_adapter = :inline
  def perform = refuse("JOB Label", 5)
end

class Report < ::ActiveJob::Base
  self.queue_adapter = :async
  queue_as :reports

  def perform(count)
    refuse("JOB Report", count)
    Label.perform_later
  end
end

class Fails < ::ActiveJob::Base
  self.queue_adapter = :async
  def perform = raise(KeyError)
end

class Discarded < ::ActiveJob::Base
  self.queue_adapter = :inline
  discard_on KeyError
  def perform = raise(KeyError)
end

desk = Probescope::Rack.new(lambda do |_|
  refuse("GET /desk", 7)
  Label.perform_later
  [200, {}, []]
end)

$stdout.sync = true
$stderr.reopen(File::NULL) # concurrent-ruby prints failed jobs
puts "ready"
nil until $stdin.wait_readable(0.01) # hooks come in while Ruby runs
12.times do |i|
  Report.perform_later(i)
  Fails.perform_later
  Discarded.perform_later
  desk.call("REQUEST_METHOD" => "GET", "PATH_INFO" => "/desk")
end
sleep 0.01 until LOCK.synchronize { TOLD[:tries].values.sum } == 12 * 5
puts JSON.generate(TOLD)
$stdin.gets
$stdin.gets
