# frozen_string_literal: true

# The tools that one would use without probescope.
module Peers
  module_function

  def start(name)
    case name
    when "ruby_prof"
      require "ruby-prof"
      @profile = RubyProf::Profile.new(measure_mode: RubyProf::WALL_TIME).tap(&:start)
    when "stackprof" then stackprof(mode: :wall, interval: 10_000)
    when "stackprof_cpu" then stackprof(mode: :cpu, interval: 10_000)
    when "stackprof_object" then stackprof(mode: :object, interval: 1)
    when "vernier"
      require "vernier"
      Vernier.start_profile(mode: :wall, interval: 10_000) # us
    when "tracepoint_call" then trace(:call, :return) { |event| @calls[event.method_id] += 1 }
    when "tracepoint_line" then trace(:line) { |event| @calls[event.lineno] += 1 }
    when "tracepoint_raise" then trace(:raise) do |event|
      @calls[[event.path, event.lineno]] += event.raised_exception.backtrace_locations.size
    end
    when "allocation_tracing"
      require "objspace"
      ObjectSpace.trace_object_allocations_start
    end
  end

  def stop(name)
    case name
    when "ruby_prof" then @profile.stop
    when "vernier" then Vernier.stop_profile
    when /\Astackprof/ then StackProf.stop && StackProf.results
    when "tracepoint_call", "tracepoint_line", "tracepoint_raise" then @trace.disable
    when "allocation_tracing"
      ObjectSpace.trace_object_allocations_stop
      ObjectSpace.trace_object_allocations_clear
    end
  end

  def stackprof(**options)
    require "stackprof"
    StackProf.start(**options)
  end

  def trace(*events, &block)
    @calls = Hash.new(0)
    @trace = TracePoint.new(*events, &block).tap(&:enable)
  end
end
