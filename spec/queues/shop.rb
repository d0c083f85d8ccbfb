# frozen_string_literal: true

# Jobs of Sidekiq, some of them ActiveJob's, which count each try, its outcome and its exceptions in
# Redis:
#
#   sidekiq -r ./shop.rb     runs them
#   ruby shop.rb enqueue     enqueues them
#   ruby shop.rb settle      runs jobs that wait for their next try at once, until all have
#                            ended
#   ruby shop.rb tell        prints these counts, and Sidekiq's
#
# REDIS_URL is the address of Redis.
require "bundler/setup"
$LOAD_PATH.unshift(File.expand_path("../../lib", __dir__))
require "probescope/auto"
require "active_job"
require "json"
require "sidekiq"
require "sidekiq/api"
require "sidekiq/rails" # its ActiveJob::Wrapper

module Shop
  # Counts a try, and raises and rescues this many exceptions in it.
  def self.try(job, raises = 0)
    status = 500
    raises.times { refuse }
    yield if block_given?
    status = 200
  ensure
    ::Sidekiq.redis do |redis|
      redis.hincrby("tries", "#{job.class.name} #{status}", 1)
      redis.hincrby("raised", job.class.name, raises)
    end
  end

  def self.refuse
    raise ArgumentError, "known"
  rescue ArgumentError
    nil
  end
end

::Sidekiq.configure_server do |config|
  config.logger.level = Logger::FATAL
  config.server_middleware { |chain| chain.add Probescope::Sidekiq }
end
::ActiveJob::Base.queue_adapter = :sidekiq
::ActiveJob::Base.logger = nil
::ActiveJob::Base.include Probescope::ActiveJob

class Report
  include ::Sidekiq::Job
  sidekiq_options queue: "mails"

  def perform(count)
    Shop.try(self, count) do
      Receipt.perform_async if count.odd?
      Label.perform_now
    end
  end
end

class Receipt
  include ::Sidekiq::Job
  def perform = Shop.try(self, 3)
end

# Is tried twice and then dead.
class Fails
  include ::Sidekiq::Job
  sidekiq_options retry: 1
  def perform = Shop.try(self, 1) { raise KeyError }
end

class Dead
  include ::Sidekiq::Job
  sidekiq_options retry: 0
  def perform = Shop.try(self) { raise KeyError }
end

# Succeeds at its third try. Only ActiveJob sees the failures.
class Mailer < ::ActiveJob::Base
  queue_as :mails
  retry_on KeyError, wait: 0, attempts: 3
  def perform = Shop.try(self, 2) { raise KeyError if executions < 3 }
end

# Runs at once, within another job.
class Label < ::ActiveJob::Base
  def perform = Shop.try(self, 5)
end

TIMES = 12

# Returns the number of counted tries that have ended.
def tried = ::Sidekiq.redis { |redis| redis.hvals("tries") }.sum(&:to_i)

case ARGV.first
when "enqueue"
  TIMES.times { |i| Report.perform_async(i) }
  TIMES.times { [Fails, Dead].each(&:perform_async) && Mailer.perform_later }
when "settle"
  expected = Integer(ARGV[1])
  until tried >= expected
    ::Sidekiq::RetrySet.new.each(&:add_to_queue)
    ::Sidekiq::ScheduledSet.new.each(&:add_to_queue)
    sleep 0.1
  end
when "tell"
  tries, raised = ::Sidekiq.redis do |redis|
    %w[tries raised].map { |name| redis.hgetall(name).transform_values(&:to_i) }
  end
  stats = ::Sidekiq::Stats.new
  puts JSON.generate(tries: tries, raised: raised, processed: stats.processed, failed: stats.failed,
                     dead: stats.dead_size)
end
