# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/tracing"

# On every version of Ruby, each probe of the ABI fires, or its state says why not. The twin of
# tests/test_every_probe.py.
RSpec.describe "every probe", :bpf do
  # While a tracer is attached to one of these, other probes cover more. They have no events.
  switches = %i[functions__all stats__by_request]
  # This probe fires so many events that a busy tracer loses some. So it is not traced together with
  # probes that fire a single event.
  many = :object__alloc
  # What this version of Ruby cannot serve.
  unserved = [*(%i[gvl__wait wait__stats] if RUBY_VERSION < "3.2"),
              (:exception__rescue if RUBY_VERSION < "3.3")].compact
  # Fires only where a probe is not served.
  idle = unserved.empty? ? %i[status] : []

  source = <<~RUBY
    require "shellwords"
    require "zlib"

    class Parcel; end

    class Desk
      def wait = sleep(0.11)

      def lose
        raise KeyError, "lost"
      end

      def look
        lose
      rescue KeyError => e
        e.backtrace
      end

      def pack = Array.new(10) { Parcel.new }

      def burn
        data = "x" * (1 << 20)
        ends = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + 0.3
        Zlib.crc32(data) while Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) < ends
      end
    end

    desk = Desk.new
    Gate.on(PROBES)
    Gate.flushed(1) # the semaphore is raised a moment before the tracer receives events
    desk.wait
    desk.look
    30.times do
      desk.pack
      sleep 0.01
    end
    # Each waits for the VM lock while the other one computes.
    Array.new(2) { Thread.new { desk.burn } }.each(&:join)
    GC.start
    Shellwords.split("one two")
    app = Probescope::Rack.new(->(_) { [404, {}, []] })
    app.call("REQUEST_METHOD" => "GET", "SCRIPT_NAME" => "", "PATH_INFO" => "/")
    Gate.flushed
    Gate.done states: Probescope.status[:probes]
  RUBY
  line_of = ->(text) { source.lines.index { |line| line.include?(text) } + 1 }
  lost, made = line_of["raise KeyError"], line_of["Parcel.new"]

  # Of each probe, one event with exactly these values is expected.
  wanted = {
    function__entry: {function: "Desk#lose", line: line_of["def lose"], depth: 1, kind: 0},
    function__return: {function: "Desk#lose", line: line_of["def lose"], depth: 1, outcome: 1},
    function__slow1ms: {function: "Desk#wait", line: line_of["def wait"], outcome: 0},
    function__slow10ms: {function: "Desk#wait", line: line_of["def wait"], outcome: 0},
    function__slow100ms: {function: "Desk#wait", line: line_of["def wait"], outcome: 0},
    function__stats: {function: "Desk#lose", line: line_of["def lose"], calls: 1, raised: 1},
    exception__raise: {type: "KeyError", function: "Desk#lose", line: lost},
    exception__detail: {type: "KeyError", function: "Desk#lose", line: lost, message: "lost"},
    exception__rescue: {type: "KeyError", function: "Desk#look", raise_line: lost, unwound: 1},
    exception__stats: {type: "KeyError", function: "Desk#lose", line: lost, raised: 1},
    backtrace__done: {function: "Desk#look", type: "KeyError", raise_line: lost, depth: 3},
    object__alloc: {class: "Parcel", line: made},
    object__stats: {class: "Parcel", line: made},
    gc__start: {kind: "major"},
    gc__done: {kind: "major"},
    sample: {function: "Desk#burn"},
    sample__stats: {function: "Desk#burn"},
    sample__frame: {function: "Desk#burn", line: line_of["Zlib.crc32("]},
    stack__frame: {function: "Desk#burn", line: line_of["Zlib.crc32("]},
    stack__cpu: {},
    line: {function: "Desk#lose", line: lost},
    gvl__wait: {}, # whichever thread it was
    request__start: {route: "/", method: "GET", parent_id: 0},
    request__done: {route: "(not found)", method: "GET", status: 404, path: "/"},
    wait__stats: {what: "Kernel#sleep", function: "Desk#wait", line: line_of["def wait"], waits: 1},
    stats__done: {dropped: 0},
    status: {probe: unserved.first.to_s, state: 4},
    function__here: {gil: 0, gil_bytes: 0, vm_frame: 0, vm_code: 0, vm_text: 0, vm_lines: 0, vm_object: 0}
  }

  it "fires or says why not" do
    expect(wanted.keys + switches).to match_array(Probescope::ABI::PROBES.keys)
    served = wanted.except(*unserved, *idle, many)
    run = trace(source.sub("PROBES", served.keys.map(&:inspect).join(", ")),
                served.transform_values(&:keys), attach: unserved)
    served.each { |probe, event| expect(run.events(probe)).to include(eq(event)), probe.to_s }
    expect(run.report[:states].slice(*unserved).values).to all(match(["unsupported", /\w/]))
  end

  it "for allocations fires, and the standard library is covered as long as that is asked for" do
    run = trace(source.sub("PROBES", ":function__stats, :functions__all, #{many.inspect}"),
                {function__stats: %i[function calls], many => %i[class line]}, attach: %i[functions__all])
    expect(run.totals(:function__stats).fetch("Shellwords.shellsplit")[:calls]).to eq(1)
    expect(run.events(many)).to include(eq(wanted[many]))
  end
end
