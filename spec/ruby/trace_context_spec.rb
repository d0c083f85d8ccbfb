# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/tracing"
require_relative "support/opentelemetry"

RSpec.describe "the trace context", :bpf do
  fields = { function__slow1ms: %i[function traceparent], exception__detail: %i[type message traceparent] }
  env = { "PROBESCOPE_FUNCTIONS" => "Case#*" }

  # Returns {label => traceparent} of the slow calls and of the exceptions.
  def seen(run)
    # The gems raise exceptions, too.
    details = run.events(:exception__detail).select { |event| event[:type] == "ArgumentError" }
    slow = run.events(:function__slow1ms).to_h do |event|
      [event[:function].delete_prefix("Case#"), event[:traceparent]]
    end
    [slow, details.to_h { |event| event.values_at(:message, :traceparent) }]
  end

  # Runs a slow call and an exception with this name, and notes the application's current span.
  cases = <<~RUBY
    class Case; end
    SAID = {}
    def current = OpenTelemetry::Trace.current_span.context
    def here(name)
      parents = OpenTelemetry::Trace::Propagation::TraceContext::TraceParent
      SAID[name] = current.valid? ? parents.from_span_context(current).to_s : ""
      # Each case has its own place, because details are limited by place.
      Case.class_eval("def \#{name} = (sleep(0.002); (raise(ArgumentError, '\#{name}') rescue 1))",
                      "\#{__dir__}/\#{name}.rb", 1)
    end
    def run(name) = (here(name); Case.new.public_send(name))
    # The methods are hooked before they are called, as each file is new.
    def remote(flags)
      flags = OpenTelemetry::Trace::TraceFlags.from_byte(flags)
      context = OpenTelemetry::Trace::SpanContext.new(trace_flags: flags)
      OpenTelemetry::Trace.non_recording_span(context)
    end
    def everywhere(&span)
      run("outside")
      span.call("outer") do
        run("outer")
        span.call("inner") { run("inner") }
        run("outer_again")
        Thread.new { run("bare_thread"); span.call("thread") { run("thread") } }.join
        Fiber.new { run("bare_fiber") }.resume
        fiber = Fiber.new { span.call("fiber") { run("fiber"); Fiber.yield; run("fiber_again") } }
        fiber.resume
        run("beside_fiber")
        fiber.resume
        OpenTelemetry::Trace.with_span(remote(1)) { run("remote") }
        OpenTelemetry::Trace.with_span(remote(0)) { run("unsampled_remote") }
        OpenTelemetry::Context.with_value("key of somebody else", 1) { run("with_value") }
        OpenTelemetry::Trace.with_span(OpenTelemetry::Trace::Span::INVALID) { run("invalid") }
      end
      run("after")
    end
  RUBY

  # unsaid: further places without a span.
  def check(run, unsaid = [])
    said = run.report[:said].transform_keys(&:to_s)
    seen(run).each { |events| expect(events).to eq(said) }
    empty, traced = said.partition { |_, text| text.empty? }.map(&:to_h)
    expect(empty.keys).to contain_exactly("outside", "bare_thread", "bare_fiber", "invalid", "after", *unsaid)
    expect(traced.values).to all(match(/\A00-\h{32}-\h{16}-\h\h\z/))
    expect(traced.values_at("remote", "unsampled_remote")).to match([end_with("-01"), end_with("-00")])
    expect(run.report[:states]).to eq(on: 2)
    expect(run.target.err).to be_empty
    said
  end

  done = <<~RUBY
    states = Probescope.status[:probes].slice(:function__slow1ms, :exception__detail)
    Gate.done said: SAID, states: states.values.map(&:first).tally, reasons: states.values.map(&:last).uniq
  RUBY

  it "is that of the application's span, in threads and fibers, sampled or not" do
    run = trace(<<~RUBY, fields, options: OpenTelemetryGems.options, env: env)
      class Case
        def bare = (sleep(0.002); (raise(ArgumentError, "bare") rescue 1))
      end
      Gate.on :function__slow1ms, :exception__detail
      Case.new.bare # before OpenTelemetry is loaded
      require "opentelemetry/sdk"
      #{cases}
      SAID["bare"] = ""
      tracer = OpenTelemetry::SDK::Trace::TracerProvider.new.tracer("spec")
      off = OpenTelemetry::SDK::Trace::Samplers::ALWAYS_OFF
      never = OpenTelemetry::SDK::Trace::TracerProvider.new(sampler: off).tracer("spec")
      everywhere { |name, &block| tracer.in_span(name, &block) }
      never.in_span("unsampled") { run("unsampled") }
      odd = remote(3)
      OpenTelemetry::Trace.with_span(odd) { run("odd_flags") }
      SAID["odd_flags"] = "00-\#{odd.context.hex_trace_id}-\#{odd.context.hex_span_id}-03"
      #{done}
    RUBY
    said = check(run, ["bare"])
    expect(said.values_at("outer", "unsampled")).to match([end_with("-01"), end_with("-00")])
    # The spans have one trace, and each its own id.
    spans = said.values_at("outer", "inner").map { |text| text.split("-") }
    expect(spans.map { |span| span[1] }.uniq.size).to eq(1)
    expect(spans.map { |span| span[2] }.uniq.size).to eq(2)
    expect(said.values_at("outer_again", "beside_fiber", "with_value").uniq).to eq([said["outer"]])
  end

  it "is also read from API 1.0 to 1.4, which keep it in another place" do
    run = trace(<<~RUBY, fields, options: OpenTelemetryGems.old_options, env: env)
      require "opentelemetry"
      #{cases}
      Gate.on :function__slow1ms, :exception__detail
      everywhere { |_, &block| OpenTelemetry::Trace.with_span(remote(1)) { block.call } }
      states = Probescope.status[:probes].slice(:function__slow1ms, :exception__detail).values
      Gate.done version: OpenTelemetry::VERSION, said: SAID, states: states.map(&:first).tally
    RUBY
    expect(run.report[:version]).to eq("1.4.0")
    check(run)
  end

  it "is read without a call to the application's objects" do
    run = trace(<<~RUBY, fields, options: OpenTelemetryGems.options, env: env)
      require "opentelemetry"
      #{cases}
      class Curious
        def hash = asked(0)
        def eql?(other) = asked(true)
        def ==(other) = asked(true)
        def method_missing(*) = asked(nil)
        def respond_to_missing?(*) = asked(false)
        def asked(answer) = (($asked << caller(1, 1)) if $armed; answer)
      end
      class CuriousSpan < OpenTelemetry::Trace::Span
        %i[context recording? hash respond_to? instance_variable_get].each do |name|
          define_method(name) { |*arguments| $armed ? ($asked << name) : super(*arguments) }
        end
      end
      $asked = []
      Gate.on :function__slow1ms, :exception__detail
      span = CuriousSpan.new.freeze
      parents = OpenTelemetry::Trace::Propagation::TraceContext::TraceParent
      SAID["curious"] = parents.from_span_context(span.context).to_s
      Case.class_eval("def curious = (sleep(0.002); (raise(ArgumentError, 'curious') rescue 1))",
                      "\#{__dir__}/curious.rb", 1)
      context = OpenTelemetry::Context.empty
      20.times { context = context.set_value(Curious.new, 1) }
      context = OpenTelemetry::Trace.context_with_span(span, parent_context: context).freeze
      OpenTelemetry::Context.with_current(context) do
        $armed = true
        Case.new.curious
        $armed = false
      end
      Gate.done said: SAID, asked: $asked
    RUBY
    expect(run.report[:asked]).to eq([])
    seen(run).each { |events| expect(events).to eq("curious" => run.report[:said][:curious]) }
  end

  it "is empty if its storage is unknown, and the probes report it" do
    run = trace(<<~RUBY, fields, options: OpenTelemetryGems.options, env: env)
      require "opentelemetry"
      #{cases}
      class Holder
        def initialize(**values) = values.each { |name, value| instance_variable_set("@\#{name}", value) }
      end
      key = OpenTelemetry::Trace.send(:const_get, :CURRENT_SPAN_KEY)
      with_span = ->(span) { [Holder.new(entries: { key => span })] }
      ids = { trace_id: "t" * 16, span_id: "s" * 8, trace_flags: Holder.new(flags: 1) }
      with = ->(**changed) { with_span[Holder.new(context: Holder.new(**ids, **changed))] }
      odd = [7, "text", :symbol, 1.5, Object.new, BasicObject.new, [7], [nil, :x], [BasicObject.new],
             [Holder.new], [Holder.new(entries: [])], [Holder.new(entries: nil)],
             with_span[7], with_span["span"], with_span[BasicObject.new],
             with_span[Struct.new(:context).new(1)], with_span[Holder.new(context: nil)], with_span[Class],
             with[trace_id: "short"], with[trace_id: 1], with[trace_id: nil],
             with[span_id: "x" * 9], with[span_id: BasicObject.new],
             with[trace_flags: nil], with[trace_flags: 1], with[trace_flags: Holder.new(flags: "01")],
             with[trace_flags: Holder.new(flags: 2**80)], with[trace_flags: Holder.new]]
      Case.class_eval("def odd = (sleep(0.002); (raise(ArgumentError, 'odd') rescue 1))",
                      "\#{__dir__}/odd.rb", 1)
      Case.class_eval("def known = (sleep(0.002); (raise(ArgumentError, 'known') rescue 1))",
                      "\#{__dir__}/known.rb", 1)
      Gate.on :function__slow1ms, :exception__detail
      states = -> { Probescope.status[:probes].values_at(:function__slow1ms, :exception__detail) }
      Fiber.current.opentelemetry_context = with.()
      Case.new.known
      before = states.()
      odd.each { |context| Fiber.current.opentelemetry_context = context; Case.new.odd }
      Fiber.current.opentelemetry_context = nil
      Gate.done before: before.map(&:first), after: states.(), odd: odd.size
    RUBY
    expect(run.events(:function__slow1ms).map { |event| event[:traceparent] })
      .to eq(["00-#{"74" * 16}-#{"73" * 8}-01", *[""] * run.report[:odd]])
    expect(run.events(:exception__detail).map { |event| event[:traceparent] }.uniq)
      .to eq(["00-#{"74" * 16}-#{"73" * 8}-01", ""])
    expect(run.report[:before]).to eq(%w[on on])
    reason = "OpenTelemetry is loaded, but keeps its context in a way that is not known: traceparent is empty"
    expect(run.report[:after]).to eq([["degraded", reason]] * 2)
    expect(run.target.err).to be_empty
    run.target.await_off("function__slow1ms", "exception__detail")
    expect(run.target.info.state("function__slow1ms")).to eq(:off)
  end
end
