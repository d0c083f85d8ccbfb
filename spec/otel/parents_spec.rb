# frozen_string_literal: true

require "spec_helper"
require "ruby/support/opentelemetry"
require "support/otlp_server"
require "support/parents"

# GIVEN concurrent requests on threads, fibers or tasks, WHEN a bridge is attached, THEN each slow
# call is a child of the span that encloses it in the program's own record, and no call is in a
# trace that the program does not sample.
RSpec.describe "probescope otel and requests beside each other", :bpf do
  programs = File.join(Support::ROOT, "spec/otel/programs")
  ruby = {source: "#{programs}/requests.rb", options: OpenTelemetryGems.options}
  python = {source: "#{programs}/requests.py", python: Support::FlaskApp.python}

  # TIMES=8 gives at least 10,000 children of each kind.
  times = Integer(ENV.fetch("TIMES", 1))
  # [program, kind, workers, requests of each]
  runs = {"Ruby's threads" => [ruby, "threads", 8, 40 * times],
          "Ruby's fibers" => [ruby, "fibers", 50, 10 * times],
          "Python's threads" => [python, "threads", 8, 40 * times],
          "asyncio's tasks" => [python, "tasks", 100, 10 * times]}
  runs.each do |name, (language, *arguments)|
    it "gives each slow call of #{name} its own parent" do
      if language == python
        [Support::Python, Support::FlaskApp].each { |needed| needed.require! { |reason| skip reason } }
      end
      report = bridged(**language, arguments: arguments)
      expect(report.to_s)
        .to eq("#{report.expected} children: 0 with a wrong parent, 0 without theirs, 0 missing")
      expect(@told).to include("lost_events" => 0, "unsampled" => be >= report.unsampled)
    end
  end

  # Without OpenTelemetry in the application, the bridge sends its requests, too.
  {"Ruby's threads and fibers" => "own_requests.rb",
   "Python's threads and tasks" => "own_requests.py"}.each do |name, program|
    it "gives each request and job of #{name}, and their slow calls, their own parents, in forked children" do
      Support::Python.require! { |reason| skip reason } if program.end_with?(".py")
      report = bridged(source: "#{programs}/#{program}", arguments: [4, 10 * times],
                       env: {"PROBESCOPE_FUNCTIONS" => "*/own_work.*"})
      expect(report.to_s)
        .to eq("#{report.expected} children: 0 with a wrong parent, 0 without theirs, 0 missing")
      expect(@told).to include("lost_events" => 0, "unsampled" => report.unsampled)
    end
  end

  # Returns the Support::Parents of a run of the program.
  def bridged(source:, arguments:, **options)
    server = keep(Support::OtlpServer.new)
    Dir.mktmpdir do |directory|
      file = File.join(directory, "report")
      process = target(source, *arguments.map(&:to_s), file, stdin: true, **options).ready
      bridge = probescope_start("otel", "-p", process.pid, "--workers", "--slow", "1ms",
                                "--exceptions", "none", "--endpoint", server.endpoint)
      bridge.await_line(/attached to/, stream: :err)
      traced = process.out[/^children (.*)$/, 1]&.split&.map(&:to_i) || [process.pid]
      traced.each { |pid| process.await_on("function__slow1ms", of: pid) }
      process.puts("go")
      process.await_line(/^done$/, within: 300)
      parents = Support::Parents.new(JSON.parse(File.read(file)))
      await("all spans", every: 0.2) { server.spans.size >= parents.expected }
      expect(bridge.stop(within: 60)).to be_success
      @told = JSON.parse(bridge.err.lines.grep(/received/).last[/\{.*/])
      parents.take(server.spans)
    end
  end
end
