# frozen_string_literal: true

# Loaded by the programs of hostile_spec.rb. Each says itself when it is traced, and runs without
# probescope as well: there these methods do nothing.
if ENV["TRACED"]
  # From here on the tracer, which waits for whoever loads the library, has its hooks in.
  def listen(library = ENV.fetch("TRACED"))
    require library
    probes = Probescope.status[:probes]
    sleep 0.002 until probes.keys.all? { |probe| Probescope.status[:probes][probe].first != :off }
  end

  # Until what happened so far has been counted and told.
  def settle
    before = Probescope.status[:flushes]
    sleep 0.005 until Probescope.status[:flushes] > before
  end
else
  def listen = nil
  def settle = nil
end
