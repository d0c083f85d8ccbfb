# frozen_string_literal: true

require "json"
require "probescope/auto" unless defined?(Probescope)

# The traced programs of these specs load this file. Its methods have a path that function probes
# ignore, so a program's events have its own calls only.
eval <<~RUBY, TOPLEVEL_BINDING, "<gate>", 1
  # frozen_string_literal: true

  # Lets a traced program wait for its tracer.
  module Gate
    module_function

    def state(probe) = Probescope.status[:probes].fetch(probe).first

    # Waits until the hooks of these probes and of GATE_ALSO are in: events before a tracer's last
    # probe is attached belong to no interval.
    def on(*probes)
      probes += ENV.fetch("GATE_ALSO", "").split.map(&:to_sym)
      sleep 0.002 until probes.all? { |probe| %i[on degraded].include?(state(probe)) }
    end

    # Waits until their hooks are out.
    def off(*probes)
      sleep 0.002 until probes.all? { |probe| state(probe) == :off }
    end

    # Waits until all events so far have been fired.
    def flushed(times = 2)
      before = Probescope.status[:flushes]
      sleep 0.005 until Probescope.status[:flushes] >= before + times
    end

    # Waits until the spec creates the file.
    def open(name)
      sleep 0.002 until File.exist?(File.join(ENV.fetch("GATE_DIRECTORY"), name.to_s))
    end

    # Tells the spec in which function each thread is, {number => name or nil}, and waits until the
    # spec has looked.
    def stage(name, functions)
      functions = { Thread.current.native_thread_id => functions } unless functions.is_a?(Hash)
      $stdout.write("stage \#{name} " + JSON.generate(functions) + "\n")
      $stdout.flush
      open(name)
    end

    # Reports the program's own figures to the spec, and waits to be ended. The sleeps are short: a
    # sleeping VM runs no jobs.
    def done(report = {})
      $stdout.write("report " + JSON.generate(report) + "\\n")
      $stdout.flush
      loop { sleep 0.02 }
    end
  end
RUBY
