# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/tracing"

RSpec.describe "jobs", :bpf do
  fields = { request__start: %i[route method span_id],
             request__done: %i[route method status traceparent span_id parent_id system queue] }
  parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

  def jobs(run)
    run.events(:request__done).to_h do |event|
      [event[:route], event.values_at(:method, :status, :system, :queue)]
    end
  end

  it "fire once each, whatever their outcome" do
    run = trace(<<~RUBY, fields)
      require "timeout"
      MIDDLEWARE = Probescope::Sidekiq
      def sidekiq(job, &block) = MIDDLEWARE.new.call(nil, job, "mails", &block)
      Gate.on :request__start, :request__done
      Gate.flushed # the semaphore is raised a moment before the tracer listens
      seen = {}
      seen[:returned] = sidekiq({"class" => "Mail", "traceparent" => "#{parent}"}) { 7 }
      seen[:raised] = begin
        sidekiq({"class" => "Fails"}) { raise ArgumentError, "of the job" }
      rescue
        "\#{$!.class} \#{$!.message}"
      end
      seen[:timeout] = begin
        Timeout.timeout(0.01) { sidekiq({"class" => "Slow"}) { sleep } }
      rescue
        $!.class.name
      end
      # ActiveJob within Sidekiq is one job, which failed if ActiveJob reports a failure. A job that
      # it performs at once is another one.
      def wrapped(name, outer, inner, &block)
        sidekiq({"class" => "Wrapper", "wrapped" => name, "args" => [{"job_id" => outer}]}) do
          Probescope::Job.run(name, system: "active_job", queue: "x", id: inner, &block)
        rescue KeyError
          nil # retry_on
        end
      end
      wrapped("Inner", "7", "7") { Probescope::Job.run("Within", system: "active_job", id: "8") { 1 } }
      wrapped("Retried", "9", "9") { raise KeyError }
      wrapped("Odd", nil, nil) { 1 }
      sidekiq({"class" => "Wrapper", "wrapped" => "Odder", "args" => ["no", 7]}) { 1 }
      # A job that runs within a request is its own request.
      Probescope::Rack.new(->(_) { Probescope::Job.run("Inline", system: "active_job") { 1 }; [200, {}, []] })
                      .call("REQUEST_METHOD" => "GET", "PATH_INFO" => "/")
      # A frozen thread cannot hold any data.
      frozen = Thread.new { Thread.current.freeze && Probescope::Job.run("Frozen", system: "") { 3 } }
      seen[:frozen] = frozen.value
      Probescope::Job.run(nil, system: nil, queue: :symbol) { 1 }
      Probescope::Job.run("Hostile\\e[31m\\xff", system: "s" * 100, queue: "q" * 1000) { 1 }
      seen[:left] = [Thread.current[:__probescope_request__], Thread.current[Probescope::Job::UNDER_WAY]]
      Gate.done seen
    RUBY
    expect(run.report).to eq(returned: 7, raised: "ArgumentError of the job", timeout: "Timeout::Error",
                             left: [nil, nil], frozen: 3)
    expect(run.target.err).to be_empty
    expect(jobs(run)).to eq(
      "Mail" => ["JOB", 200, "sidekiq", "mails"], "Fails" => ["JOB", 500, "sidekiq", "mails"],
      "Slow" => ["JOB", 500, "sidekiq", "mails"], "Inner" => ["JOB", 200, "sidekiq", "mails"],
      "Within" => ["JOB", 200, "active_job", ""], "Retried" => ["JOB", 500, "sidekiq", "mails"],
      "Odd" => ["JOB", 200, "sidekiq", "mails"], "Odder" => ["JOB", 200, "sidekiq", "mails"],
      "Frozen" => ["JOB", 200, "", ""], "/" => ["GET", 200, "", ""],
      "Inline" => ["JOB", 200, "active_job", ""], "" => ["JOB", 200, "", ""],
      "Hostile?[31m?" => ["JOB", 200, "s" * 31, "q" * 62]
    )
    mail = run.events(:request__done).find { |event| event[:route] == "Mail" }
    expect(mail[:traceparent])
      .to start_with("00-0af7651916cd43dd8448eb211c80319c-#{format("%016x", mail[:span_id])}")
    starts, ends = %i[request__start request__done].map do |probe|
      run.events(probe).map { |event| event[:span_id] }
    end
    expect(starts).to match_array(ends)
    ids = run.events(:request__done).to_h { |event| [event[:route], event.values_at(:span_id, :parent_id)] }
    expect(ids.values_at("Within", "Inline").map(&:last)).to eq(ids.values_at("Inner", "/").map(&:first))
  end
end
