# frozen_string_literal: true

require "json"
require "probescope/auto" unless defined?(Probescope)

# Loaded by the traced programs of these specs. Its methods have a path that function probes leave
# alone, so that a program shows its own calls only.
eval <<~RUBY, TOPLEVEL_BINDING, "<gate>", 1
  # frozen_string_literal: true

  # Where a traced program waits for its tracer.
  module Gate
    module_function

    def state(probe) = Probescope.status[:probes].fetch(probe).first

    # Until the hooks of these probes are in, and of GATE_ALSO: what is counted before a tracer's
    # last probe came is in no interval.
    def on(*probes)
      probes += ENV.fetch("GATE_ALSO", "").split.map(&:to_sym)
      sleep 0.002 until probes.all? { |probe| %i[on degraded].include?(state(probe)) }
    end

    # Until they are out.
    def off(*probes)
      sleep 0.002 until probes.all? { |probe| state(probe) == :off }
    end

    # Until all that happened so far has been fired.
    def flushed(times = 2)
      before = Probescope.status[:flushes]
      sleep 0.005 until Probescope.status[:flushes] >= before + times
    end

    # Until the spec says so: it makes the file.
    def open(name)
      sleep 0.002 until File.exist?(File.join(ENV.fetch("GATE_DIRECTORY"), name.to_s))
    end

    # Tells the spec what this program knows itself, and waits to be ended. Not in one long sleep: a
    # sleeping VM does no jobs, and what was allocated gets its names in one.
    def done(report = {})
      $stdout.write("report " + JSON.generate(report) + "\\n")
      $stdout.flush
      loop { sleep 0.02 }
    end
  end
RUBY
