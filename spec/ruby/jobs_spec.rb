# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/tracing"

RSpec.describe "jobs", :bpf do
  fields = { request__start: %i[route method span_id],
             request__done: %i[route method status traceparent span_id parent_id system queue] }
  parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
  # A folder of gems, where they are not among those of the Gemfile: GEM_PATH for the program.
  gems = ENV.fetch("PROBESCOPE_JOB_GEMS", nil)

  def jobs(run) = run.events(:request__done).to_h { |event| [event[:route], event.values_at(:method, :status, :system, :queue)] }

  it "are told of once each, whatever becomes of them" do
    run = trace(<<~RUBY, fields)
      require "timeout"
      MIDDLEWARE = Probescope::Sidekiq
      def sidekiq(job, &block) = MIDDLEWARE.new.call(nil, job, "mails", &block)
      Gate.on :request__start, :request__done
      seen = {}
      seen[:returned] = sidekiq({"class" => "Mail", "traceparent" => "#{parent}"}) { 7 }
      seen[:raised] = begin sidekiq({"class" => "Fails"}) { raise ArgumentError, "of the job" } rescue "\#{$!.class} \#{$!.message}" end
      seen[:timeout] = begin Timeout.timeout(0.01) { sidekiq({"class" => "Slow"}) { sleep } } rescue $!.class.name end
      # As ActiveJob is within Sidekiq: one job.
      sidekiq({"class" => "Wrapper", "wrapped" => "Inner"}) { Probescope::Job.run("Inner", system: "active_job", queue: "x") { 1 } }
      # One that is made in a request is a request of its own.
      Probescope::Rack.new(->(_) { Probescope::Job.run("Inline", system: "active_job") { 1 }; [200, {}, []] })
                      .call("REQUEST_METHOD" => "GET", "PATH_INFO" => "/")
      Probescope::Job.run(nil, system: nil, queue: :symbol) { 1 }
      Probescope::Job.run("Hostile\\e[31m\\xff", system: "s" * 100, queue: "q" * 1000) { 1 }
      seen[:left] = [Thread.current[:__probescope_request__], Thread.current[Probescope::Job::UNDER_WAY]]
      Gate.done seen
    RUBY
    expect(run.report).to eq(returned: 7, raised: "ArgumentError of the job", timeout: "Timeout::Error", left: [nil, nil])
    expect(run.target.err).to be_empty
    expect(jobs(run)).to eq(
      "Mail" => ["JOB", 200, "sidekiq", "mails"], "Fails" => ["JOB", 500, "sidekiq", "mails"],
      "Slow" => ["JOB", 500, "sidekiq", "mails"], "Inner" => ["JOB", 200, "sidekiq", "mails"],
      "/" => ["GET", 200, "", ""], "Inline" => ["JOB", 200, "active_job", ""], "" => ["JOB", 200, "", ""],
      "Hostile?[31m?" => ["JOB", 200, "s" * 31, "q" * 62]
    )
    mail = run.events(:request__done).find { |event| event[:route] == "Mail" }
    expect(mail[:traceparent]).to start_with("00-0af7651916cd43dd8448eb211c80319c-#{format("%016x", mail[:span_id])}")
    expect(run.events(:request__start).map { |event| event[:span_id] }).to match_array(run.events(:request__done).map { |event|
      event[:span_id]
    })
  end

  it "of ActiveJob are told of, each try by itself" do
    skip "PROBESCOPE_JOB_GEMS names no folder with the gem activejob" unless gems

    run = trace(<<~RUBY, fields, env: { "GEM_PATH" => gems })
      require "active_job"
      ActiveJob::Base.include Probescope::ActiveJob
      ActiveJob::Base.logger = nil
      class Mail < ActiveJob::Base
        queue_as :mails
        def perform = 1
      end
      class Fails < ActiveJob::Base
        def perform = raise(ArgumentError)
      end
      Gate.on :request__start, :request__done
      Mail.perform_now
      begin Fails.perform_now rescue ArgumentError end
      Gate.done({})
    RUBY
    expect(jobs(run)).to include("Mail" => ["JOB", 200, "active_job", "mails"], "Fails" => ["JOB", 500, "active_job", "default"])
    expect(run.target.err).to be_empty
  end
end
