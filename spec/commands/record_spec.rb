# frozen_string_literal: true

require "spec_helper"
require "support/host_helpers"
require "support/profiles"
require "support/schemas"

# What `record` writes of a real process. record_endings_spec.rb has its ends.
RSpec.describe "record", :bpf do
  around { |example| Dir.mktmpdir { |dir| (@dir = dir) && example.run } }

  def file(name = "host.pb.gz") = File.join(@dir, name)
  def read(path = file) = Probescope::Profile::PprofReader.read(path)

  # Starts a command and waits until a second is recorded.
  def recording(process, *options, path: file)
    command = probescope_start("record", "-p", process.pid, "-o", path, *options)
    await("the attach", within: 60) { info_of(process).semaphore("stack__cpu").positive? }
    await_flushes(process, 4)
    command
  end

  # {"outer;inner" => weight}
  def paths(recording)
    found = Hash.new(0)
    recording.each_cell do |_, _, _, node, _, weight, _|
      found[recording.stack(node).reverse.map(&:function).join(";")] += weight
    end
    found
  end

  it "has the paths of each second, thread and process, and convert shows the same" do
    pair = [host_target, host_target("--rows", 1)]
    result = probescope("record", "-p", pair.map(&:pid).join(","), "-d", 2, "-o", file, "--json")
    expect(result.json).to fit_the_schema_of("record")
    found = read
    expect(JSON.parse(JSON.generate(found.metadata))).to fit_the_schema_of("recording")
    expect(found.metadata[:lost]).to include(events: 0, paths: 0)
    expect(found.series.map(&:pid).uniq).to match_array(pair.map(&:pid))
    expect(found.metadata[:processes].map { |one| one[:seconds] }).to all(be >= 1.9)
    expect(paths(found).keys).to include("Parser#step0;Library#work", "Library#idle")
    shown = probescope("convert", file, "--json").json
    expect(shown).to fit_the_schema_of("convert")
    expect(shown["kinds"]).to eq(result.json["kinds"])
    expect(shown["kinds"].first["rows"].sum { |row| row["weight"] }).to eq(shown["kinds"].first["weight"])
  end

  it "writes a page, and refuses endings that are no format's" do
    told = probescope("record", "-p", host_target.pid, "-d", 1, "-o", file("host.html"))
    expect(told.status.exitstatus).to eq(0), told.err
    expect(File.read(file("host.html"))).to include('<script type="application/octet-stream" id="data">')
    told = probescope("record", "-p", 1, "-d", 1, "-o", file("host.svg"))
    expect([told.status.exitstatus, told.err]).to match([2, /no format's ending.*\.html, \.pb\.gz/m])
  end

  # The gem's command, and the wheel's on the same process.
  %w[rb py].each do |ending|
    it "of examples/hotfuncs.#{ending} has the application's functions and their CPU time", :python do
      process = target("examples/hotfuncs.#{ending}")
      process.info
      told = probescope("record", "-p", process.pid, "-d", 2, "-o", file, "--json")
      expect(told.status.exitstatus).to eq(0), told.err
      wheel = keep(Support::Child.new(Support::Python.interpreter, "-m", "probescope", "record", "-p",
                                      process.pid.to_s, "-d", "2", "-o", file("wheel.pb.gz"), "--json",
                                      env: Support.plain_env.merge(Support::Python.env(loaded: false))))
      expect(wheel.wait.exitstatus).to eq(0), wheel.to_s
      [told.json, JSON.parse(wheel.out)].each { |one| check_cpu(one, process.pid) }
    end
  end

  def check_cpu(told, pid)
    expect(told).to fit_the_schema_of("record")
    kind = told["kinds"].first
    expect(kind["rows"].sum { |row| row["weight"] }).to eq(kind["weight"])
    largest = kind["rows"].first
    expect(largest).to include("outside" => false, "file" => match(%r{examples/hotfuncs\.(rb|py)\z}))
    process = told["processes"].first
    cpu = process["cpu_share"] * process["seconds"] * 1e9
    expect(process["pid"]).to eq(pid)
    # Without the library's threads, and without what ran at the edges.
    expect(kind["weight"]).to be_between(0.5 * cpu, 1.1 * cpu)
  end

  it "refuses an existing file before it traces, and replaces it with --force" do
    File.write(file, "old")
    told = probescope("record", "-p", 1, "-d", 1, "-o", file)
    expect([told.status.exitstatus, told.err]).to match([2, /host\.pb\.gz exists.*--force/m])
    expect(File.read(file)).to eq("old")
    told = probescope("record", "-p", host_target.pid, "-d", 1, "-o", file, "--force")
    expect(told.status.exitstatus).to eq(0), told.err
    expect(read.total(0).first).to be_positive
  end

  it "refuses to begin beside the checkpoint of a recording that was killed" do
    File.write("#{file}.part", "left")
    told = probescope("record", "-p", 1, "-d", 1, "-o", file)
    expect(told.status.exitstatus).to eq(2)
    expect(told.err).to match(/host\.pb\.gz\.part is what a recording that was killed has left/)
  end

  it "leaves no file when it is killed, and no bpftrace" do
    process = host_target
    recording(process).signal(:KILL)
    await("the end of bpftrace") { tracers_of(process.pid).empty? }
    expect(Dir.children(@dir)).to eq([])
  end

  # As long as it takes until the first checkpoint.
  it "leaves a checkpoint when it is killed after a minute, which convert can show", full: "a minute" do
    process = host_target
    command = recording(process)
    await("a checkpoint", within: 100) { File.exist?("#{file}.part") }
    command.signal(:KILL)
    await("the end of bpftrace") { tracers_of(process.pid).empty? }
    expect(read("#{file}.part").total(0).first).to be_positive
    expect(probescope("convert", "#{file}.part").out).to include("Parser#step0")
  end
end
