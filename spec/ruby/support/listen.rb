# frozen_string_literal: true

# The programs of hostile_spec.rb load this file. Each calls `listen` when it is to be traced. In a
# run without probescope these methods do nothing.
if ENV["TRACED"]
  # The tracer waits for processes that load the library. Returns when its hooks are in.
  def listen(library = ENV.fetch("TRACED"))
    require library
    probes = Probescope.status[:probes]
    sleep 0.002 until probes.keys.all? { |probe| Probescope.status[:probes][probe].first != :off }
  end

  # Waits until the events so far have been counted and fired.
  def settle
    before = Probescope.status[:flushes]
    sleep 0.005 until Probescope.status[:flushes] > before
  end
else
  def listen = nil
  def settle = nil
end
