# frozen_string_literal: true

require "support/shared/freight_desk"

# The same web application in Python: Flask on gunicorn, with two preloaded workers.
RSpec.describe "examples/flask_app", :python do
  before { Support::FlaskApp.require! { |reason| skip reason } }

  it_behaves_like "a freight desk",
                  labels: "/labels/<int:number>",
                  app: Support::FlaskApp, hot: %w[checksum.Checksum.of], gone: "checksum.Checksum.of",
                  fixed: %w[checksum.FastChecksum.of manifest.Manifest.unit],
                  parser: {type: "ValueError", function: "manifest.Unit.weight", depth: 11,
                           file: "examples/flask_app/manifest.py", text: "total += int(kilograms)"}

  # On HUP, gunicorn forks new workers and ends the old ones.
  it "serves through a restart of its workers under a trace; the new workers are traced too, and " \
     "the old ones' rows stay", :bpf do
    app = keep(Support::FlaskApp.new).ready
    load = keep(app.load)
    old = app.workers
    command = probescope_start("calls", "-p", app.pid, "--workers", "--by-pid", "-d", 600, "--json",
                               "--top", 0)
    await_counting(app, old)
    app.signal(:HUP)
    await("new workers of #{app}", within: 60) { (app.workers & old).empty? }
    old.each { |pid| await("the end of worker #{pid}") { !File.exist?("/proc/#{pid}") } }
    await_counting(app, app.workers)
    expect(command.stop(:INT)).to be_success, command.to_s
    rows = JSON.parse(command.out)["rows"].group_by { |row| row["pid"] }.transform_values do |of|
      of.map { |row| row["function"] }
    end
    expect(rows).to include(
      (old + app.workers).to_h { |pid| [pid, include("manifest.Manifest.unit", "checksum.Checksum.of")] }
    )
    load.stop(:INT)
    expect(JSON.parse(load.out)["failed"]).to be <= 8, "#{load}#{app}"
    expect(app.stop(:TERM)).to be_success, app.to_s
  end

  # Waits until the hooks are in and an interval has begun.
  def await_counting(app, workers)
    workers.each do |pid|
      info = app.info(pid)
      await("the hooks") { info.state("function__stats") == :on }
      before = info.header[:flushes]
      await("two flushes") { info.header[:flushes] >= before + 2 }
    end
  end
end
