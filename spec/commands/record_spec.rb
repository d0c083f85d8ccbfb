# frozen_string_literal: true

require "spec_helper"
require "support/host_helpers"
require "support/profiles"
require "support/schemas"

# What `record` writes of a real process, and how it ends.
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

  it "writes each format, and refuses other endings" do
    %w[.html .speedscope.json .collapsed].each do |ending|
      told = probescope("record", "-p", host_target.pid, "-d", 1, "-o", file("host#{ending}"))
      expect(told.status.exitstatus).to eq(0), told.err
      expect(File.read(file("host#{ending}"))).not_to be_empty
      stop_processes
    end
    told = probescope("record", "-p", 1, "-d", 1, "-o", file("host.svg"))
    expect([told.status.exitstatus, told.err]).to match([2, /no format's ending.*\.html, \.pb\.gz/m])
  end

  %i[INT TERM].each do |signal|
    it "is written after #{signal}, and says that it was interrupted" do
      process = host_target
      command = recording(process)
      expect(command.stop(signal).exitstatus).to eq(0), command.to_s
      expect(read.metadata).to include(interrupted: true)
      expect(command.err).to match(/interrupted after [\d.]+ s/)
      expect(tracers_of(process.pid)).to be_empty
    end
  end

  it "is written when the process ends" do
    process = host_target("--burst", 10, "--flushes", 10)
    command = probescope_start("record", "-p", process.pid, "-o", file)
    expect(command.wait.exitstatus).to eq(0), command.to_s
    expect(read.metadata).to include(ended: true, seconds: 10.0)
    expect(command.err).to include("process #{process.pid} ended while it was traced")
  end

  it "refuses an existing file before it traces, and replaces it with --force" do
    File.write(file, "old")
    told = probescope("record", "-p", 1, "-d", 1, "-o", file)
    expect([told.status.exitstatus, told.err]).to match([2, /host\.pb\.gz exists.*--force/m])
    expect(File.read(file)).to eq("old")
    expect(probescope("record", "-p", host_target.pid, "-d", 1, "-o", file, "--force").status.exitstatus).to eq(0)
    expect(read.total(0).first).to be_positive
  end

  it "refuses to begin beside the checkpoint of a recording that was killed" do
    File.write("#{file}.part", "left")
    told = probescope("record", "-p", 1, "-d", 1, "-o", file)
    expect(told.status.exitstatus).to eq(2)
    expect(told.err).to match(/host\.pb\.gz\.part is what a recording that was killed has left/)
  end

  it "leaves nothing on a full disk, and says what the file needs" do
    expect(system("mount", "-t", "tmpfs", "-o", "size=64k", "none", @dir)).to be(true)
    File.write(file("filler"), "x" * 65_000)
    told = probescope("record", "-p", host_target.pid, "-d", 1, "-o", file("host.html"))
    expect(told.status.exitstatus).to eq(1)
    expect(told.err).to match(/cannot write .*host\.html, which needs .* KiB: No space left/)
    expect(Dir.children(@dir)).to eq(["filler"])
  ensure
    system("umount", @dir)
  end

  it "keeps what was recorded when bpftrace is killed" do
    process = host_target
    command = recording(process)
    tracers_of(process.pid).each { |path| Process.kill(:KILL, path[/\d+/].to_i) }
    expect(command.wait.exitstatus).to eq(1), command.to_s
    expect(command.err).to include("#{file} has what was recorded until then")
    expect(read.total(0).first).to be_positive
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
