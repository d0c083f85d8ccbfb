# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/tracing"
require_relative "support/opentelemetry"

RSpec.describe "requests", :bpf do
  fields = { request__start: %i[route method traceparent span_id parent_id thread_id],
             request__done: %i[route method status elapsed traceparent span_id template path],
             function__slow1ms: %i[function traceparent], exception__detail: %i[message traceparent] }
  parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

  # The application's answer to a request is the result of the given block.
  common = <<~RUBY
    PARENT = "#{parent}"
    APP = Probescope::Rack.new(->(env) { env["block"].call(env) })
    def ask(path, env = {}, &block)
      block ||= ->(_) { [200, {}, ["ok"]] }
      request = {"REQUEST_METHOD" => "GET", "SCRIPT_NAME" => "", "PATH_INFO" => path, "block" => block}
      APP.call(request.merge(env))
    end
    class Case
      def slow = sleep(0.002)
    end
    def slow = Case.new.slow
    Gate.on :request__start, :request__done, :function__slow1ms, :exception__detail
  RUBY
  env = { "PROBESCOPE_FUNCTIONS" => "Case#*" }

  def done(run) = run.events(:request__done).group_by { |event| event[:path] }.transform_values(&:first)

  it "fire once each, whatever their outcome, and do not change what the application gets" do
    run = trace(common + <<~'RUBY', fields, env: env)
      class Streamed
        attr_reader :closed
        def each = (slow; yield "a"; slow; yield "b")
        def close = (slow; @closed = true)
        def to_path = "/etc/hostname"
      end
      seen = {}
      # Exceptions, throw, a thread that is killed, a timeout
      seen[:raised] = begin
        ask("/raises") { raise ArgumentError, "of the application" }
      rescue
        "#{$!.class} #{$!.message}"
      end
      seen[:thrown] = catch(:halt) { ask("/throws") { throw :halt, 7 } }
      thread = Thread.new { ask("/killed") { sleep } }
      Thread.pass until thread.stop?
      thread.kill.join
      require "timeout"
      seen[:timeout] = begin Timeout.timeout(0.01) { ask("/slow") { sleep } } rescue $!.class.name end
      # Within a rescue of the application
      begin raise "before" rescue ask("/in_rescue") end
      # Bodies
      array = ["body"]
      seen[:array] = ask("/array") { [201, {}, array] }[2].equal?(array)
      status, headers, body = ask("/streamed") { [206, {"a" => "b"}, Streamed.new] }
      parts = []
      seen[:early] = [status, headers, body.respond_to?(:call), body.respond_to?(:to_path), body.to_path]
      body.each { |part| parts << part }
      body.close
      body.close
      seen[:parts] = parts
      called = ask("/called") { [200, {}, ->(stream) { slow; stream << "x" }] }[2]
      stream = +""
      seen[:call] = [called.respond_to?(:each), called.call(stream) && stream]
      called.close
      # An invalid answer, a hijacked connection, an outer middleware of the same kind
      seen[:nothing] = ask("/nothing") { nil }
      ask("/hijacked") { |env| env["rack.hijack_io"] = $stdout; [-1, {}, Streamed.new] }
      ask("/twice") { |env| Probescope::Rack.new(->(_) { [200, {}, []] }).call(env) }
      ask("/frozen") { [200, {}.freeze, Streamed.new].freeze }[2].close
      # Hostile: bytes, sizes, types
      ask("/\xff\e[31m\r\n\0x".b)
      ask("/é", "SCRIPT_NAME" => "/\xff".b)
      ask("/#{"x" * 100_000}")
      ask(nil, "REQUEST_METHOD" => 7, "HTTP_TRACEPARENT" => Object.new, "sinatra.route" => :a,
               "action_dispatch.request.path_parameters" => 1)
      # Routes
      ask("/labels/7", "sinatra.route" => 'GET /labels/:number', "SCRIPT_NAME" => "/app",
                       "REQUEST_METHOD" => "HEAD")
      ask("/wiki/7", "sinatra.route" => 'GET (sinatra:"/wiki" + regular:"/(\\\\d+|\\"all\\")")')
      ask("/rails/7", "action_dispatch.route_uri_pattern" => "/rails/:id(.:format)")
      ask("/old/7", "action_dispatch.request.path_parameters" => {controller: "old", action: "show"})
      ask("/own/7") { |env| env["probescope.route"] = "/own/:id"; [503, {}, []] }
      ask("/shown") { ["418", {}, []] }
      ask("/engine/7", "action_dispatch.route_uri_pattern" => "/things/:id(.:format)",
                       "action_dispatch.routes" => Struct.new(:env_key).new("OF_ENGINE"),
                       "OF_ENGINE" => "/engine")
      ask("/grape/7", "grape.routing_args" => {route_info: Struct.new(:path).new("/grape/:id(.json)")})
      ask("/desk/7", "action_dispatch.route_uri_pattern" => "/desk", "sinatra.route" => "GET /labels/:number")
      # The application that renders errors has routes, too.
      ask("/fails/7") do |env|
        fails = lambda do |inner|
          inner["action_dispatch.route_uri_pattern"] = "/fails/:id"
          [500, {}, []]
        end
        Probescope::Rack::Routed.new(fails).call(env)
      ensure
        env["action_dispatch.route_uri_pattern"] = "/500(.:format)"
      end
      ask("/ids/4711")
      ask("/gone/x") { [404, {}, []] }
      frozen = {"REQUEST_METHOD" => "GET", "PATH_INFO" => "/frozen_env", "block" => ->(_) { [200, {}, []] }}
      seen[:frozen_env] = APP.call(frozen.freeze)
      seen[:left] = Thread.current[:__probescope_request__]
      states = Probescope.status[:probes].slice(:request__start, :request__done).values.map(&:first)
      Gate.done seen.merge(states: states)
    RUBY
    expect(run.report).to eq(
      raised: "ArgumentError of the application", thrown: 7, timeout: "Timeout::Error", array: true,
      parts: %w[a b], frozen_env: [200, {}, []], early: [206, { a: "b" }, false, true, "/etc/hostname"],
      call: [false, "x"], nothing: nil, left: nil, states: %w[on on]
    )
    expect(run.target.err).to be_empty
    done = done(run)
    # The path as bpftrace prints it. Some versions mark that they cut it.
    long = done.keys.grep(%r{\A/x{60}}).first
    # A timeout is a throw before about Ruby 3.3, and an exception later.
    expect(done.transform_values { |event| event[:status] }).to match(
      "/raises" => 500, "/throws" => 0, "/killed" => 0, "/slow" => be(0).or(be(500)),
      "/in_rescue" => 200, "/array" => 201, "/streamed" => 206,
      "/called" => 200, "/nothing" => 0, "/hijacked" => 0, "/twice" => 200, "/frozen" => 200,
      "/??[31m???x" => 200, "/?/é" => 200, long => 200, "" => 200,
      "/app/labels/7" => 200, "/wiki/7" => 200, "/rails/7" => 200, "/old/7" => 200, "/own/7" => 503,
      "/shown" => 418, "/engine/7" => 200, "/grape/7" => 200, "/desk/7" => 200, "/fails/7" => 500,
      "/ids/4711" => 200, "/gone/x" => 404, "/frozen_env" => 200
    )
    expect(run.events(:request__done).size).to eq(done.size)
    starts = run.events(:request__start)
    expect(starts.map { |event| event[:span_id] })
      .to match_array(run.events(:request__done).map { |event| event[:span_id] })
    expect(starts.map { |event| event[:method] }.tally).to eq("GET" => done.size - 2, "HEAD" => 1, "" => 1)
    templates = done.transform_values { |event| event[:template] }.reject { |_, template| template.empty? }
    expect(templates).to eq("/app/labels/7" => "/app/labels/:number", "/rails/7" => "/rails/:id",
                            "/wiki/7" => '/wiki/(\d+|"all")',
                            "/old/7" => "old#show", "/own/7" => "/own/:id",
                            "/engine/7" => "/engine/things/:id", "/grape/7" => "/grape/:id",
                            "/desk/7" => "/desk/labels/:number", "/fails/7" => "/fails/:id")
    expect(%w[/ids/4711 /gone/x].map { |path| done[path][:route] }).to eq(["/ids/*", "(not found)"])
    expect(done["/own/7"][:route]).to eq("/own/:id")
    expect(done[long][:route]).to eq("...#{"x" * 59}")
    # The request lasts until its body is closed, and slow calls in the body belong to it.
    expect(done["/streamed"][:elapsed]).to be >= 6_000_000
    slow = run.events(:function__slow1ms).map { |event| event[:traceparent] }
    of = done.transform_values { |event| event[:traceparent] }
    expect(slow.tally).to eq(of["/streamed"] => 4, of["/called"] => 1, of["/frozen"] => 1)
  end

  it "have a trace that slow calls and exceptions carry, each thread and fiber its own" do
    run = trace(common + <<~'RUBY', fields, env: env)
      work = lambda do |name|
        ask("/#{name}", "HTTP_TRACEPARENT" => PARENT) do
          Case.class_eval("def #{name} = (sleep(0.002); (raise(ArgumentError, '#{name}') rescue 1))",
                          "#{__dir__}/#{name}.rb", 1)
          Case.new.public_send(name)
          Fiber.yield if Fiber.current != MAIN && name.start_with?("fiber")
          Case.new.public_send(name)
          [200, {}, []]
        end
      end
      require "fiber"
      MAIN = Fiber.current
      ask("/fresh") { slow; [200, {}, []] }
      slow # outside any request
      Array.new(3) { |i| Thread.new { work.call("thread#{i}") } }.each(&:join)
      fibers = Array.new(3) { |i| Fiber.new { work.call("fiber#{i}") } }
      2.times { fibers.each(&:resume) }
      # Nested requests, as in a test or an engine
      ask("/outer") { ask("/inner") { slow; [200, {}, []] }; slow; [200, {}, []] }
      ask("/bad", "HTTP_TRACEPARENT" => "00-zz") { slow; [200, {}, []] }
      Gate.done
    RUBY
    starts = run.events(:request__start).to_h { |event| [event[:route].delete_prefix("/"), event] }
    slow = run.events(:function__slow1ms).group_by { |event| event[:function].delete_prefix("Case#") }
              .transform_values { |events| events.map { |event| event[:traceparent] } }
    details = run.events(:exception__detail).group_by { |event| event[:message] }
    %w[thread0 thread1 thread2 fiber0 fiber1 fiber2].each do |name|
      own = format("#{parent[0, 36]}%016x-01", starts[name][:span_id] & ((1 << 64) - 1))
      expect(starts[name]).to include(traceparent: own, parent_id: parent[36, 16].hex)
      expect(slow[name]).to eq([own, own])
      expect(details[name].map { |event| event[:traceparent] }).to eq([own, own])
    end
    traces = starts.transform_values { |event| event[:traceparent] }
    expect(slow["slow"]).to eq([traces["fresh"], "", traces["inner"], traces["outer"], traces["bad"]])
    of_its_own = match(/\A00-\h{32}-\h{16}-01\z/).and(satisfy { |text| !text.include?(parent[3, 32]) })
    expect(traces.values_at("fresh", "bad")).to all(of_its_own)
    expect(starts.values_at("fresh", "bad").map { |event| event[:parent_id] }).to eq([0, 0])
    expect(run.target.err).to be_empty
  end

  # The application's measurement within a request is shorter than the reported time, and the one
  # around it is longer. Failed requests take twice as long.
  it "have percentiles by status that agree with the application's own measurements" do
    process, = program(common.sub(/^Gate.on.*/, "Gate.on :request__done") + <<~'RUBY')
      now = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) }
      Gate.flushed
      within, around = [], []
      400.times do |i|
        began = now.call
        ask("/timed") do
          start = now.call
          sleep(0.0002 * (1 + (i % 20)) * (i % 100 == 7 ? 10 : 1) * (i % 4 == 3 ? 2 : 1))
          within << (now.call - start)
          [i % 4 == 3 ? 503 : 200, {}, []]
        end
        around << (now.call - began)
      end
      Gate.flushed
      Gate.done within: within, around: around
    RUBY
    command = probescope_start("requests", "-p", process.pid, "-d", 600, "--json")
    report = JSON.parse(process.await_line(/\Areport (.*)/, within: 60)[1], symbolize_names: true)
    expect(command.stop(:INT)).to be_success, command.to_s
    rows = JSON.parse(command.out, symbolize_names: true)[:rows].select { |one| one[:route] == "/timed" }
    expect(rows.map { |row| row.slice(:status, :count, :errors, :statuses) }).to contain_exactly(
      { status: "2xx", count: 300, errors: 0, statuses: { "200": 300 } },
      { status: "5xx", count: 100, errors: 100, statuses: { "503": 100 } }
    )
    rows.each do |row|
      within, around = report.values_at(:within, :around).map do |times|
        times.each_index.select { |i| (i % 4 == 3) == (row[:status] == "5xx") }.map { |i| times[i] }.sort
      end
      { p50_ns: 0.5, p99_ns: 0.99, max_ns: 1 }.each do |name, share|
        rank = (row[:count] * share).ceil - 1
        expect(row[name]).to be_between(within[rank] * 0.968, around[rank] * 1.032),
                             "#{name} of #{row[:status]}"
      end
      expect(row[:mean_ns]).to be_between(within.sum / row[:count], around.sum / row[:count])
    end
  end

  # If the middleware installed the library again, function probes would restart and lose open
  # calls.
  it "accept a middleware that is created meanwhile, and report that there is one" do
    long = { "PROBESCOPE_FUNCTIONS" => "Long#*" }
    run = start(<<~'RUBY', { function__return: %i[function outcome] }, env: long)
      class Long
        def before = yield
      end
      Gate.on :function__return
      Long.new.before do
        Probescope::Rack.new(->(_) { [200, {}, []] })
        Probescope.install
        seen = Probescope.status[:flushes]
        sleep 0.01 until Probescope.status[:flushes] >= seen + 2
      end
      Gate.done
    RUBY
    run.finish
    expect(run.events(:function__return)).to eq([{ function: "Long#before", outcome: 0 }])
    expect(run.target.info.flags).to include(:requests)
  end

  it "do not report what follows the path, because that may be secret" do
    run = trace(common + <<~'RUBY', fields, env: env)
      ask("/reset", "QUERY_STRING" => "token=SECRET", "REQUEST_URI" => "/reset?token=SECRET",
                    "HTTP_COOKIE" => "SECRET")
      Gate.done
    RUBY
    expect(done(run).keys).to eq(["/reset"])
    expect(run.out).not_to include("SECRET")
  end

  it "leave traces to an application that has OpenTelemetry" do
    run = trace(common + <<~'RUBY', fields, env: env, options: OpenTelemetryGems.options)
      require "opentelemetry"
      ask("/api_only", "HTTP_TRACEPARENT" => PARENT) { slow; [200, {}, []] }
      require "opentelemetry/sdk"
      ENV["OTEL_TRACES_EXPORTER"] = "none"
      OpenTelemetry::SDK.configure
      said = nil
      ask("/instrumented", "HTTP_TRACEPARENT" => PARENT) do
        slow
        OpenTelemetry.tracer_provider.tracer("spec").in_span("request") do |span|
          said = "00-#{span.context.hex_trace_id}-#{span.context.hex_span_id}-01"
          slow
        end
        [200, {}, []]
      end
      Gate.done said: said
    RUBY
    only, instrumented = run.events(:request__start)
    expect(only[:traceparent]).to start_with(parent[0, 36]).and(satisfy { |text| text != parent })
    expect(instrumented[:traceparent]).to eq(parent)
    expect(run.events(:function__slow1ms).map { |event| event[:traceparent] })
      .to eq([only[:traceparent], parent, run.report[:said]])
  end

  it "cost the application nothing on a Ruby without probes" do
    command = [RbConfig.ruby, "-I#{Support::ROOT}/lib", "-rprobescope"]
    out, err, status = Open3.capture3(*command, "-e", <<~'RUBY')
      def Probescope.available? = false
      def Probescope.install = false
      body = []
      p Probescope::Rack.new(->(env) { [env[:n], {}, body] }).call({n: 3}) == [3, {}, body]
    RUBY
    expect([out, err, status.success?]).to eq(["true\n", "", true])
  end
end
