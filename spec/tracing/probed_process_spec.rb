# frozen_string_literal: true

require "spec_helper"
require "support/host_helpers"
require "probescope/tracing/probed_process"

RSpec.describe "Finding a process's library" do
  def find(pid) = Probescope::Tracing::ProbedProcess.find(pid)

  # Returns the Error.
  def refusal(pid)
    find(pid)
    nil
  rescue Probescope::Tracing::Error => e
    e
  end

  it "reads the process's own fields" do
    process = host_target
    expect(find(process.pid).status)
      .to include(pid: process.pid, runtime: "ruby", library: "0.1.0", deleted: false)
  end

  it "finds the symbol, not the file's name, also when the file was deleted" do
    Dir.mktmpdir do |folder|
      copy = File.join(folder, "anything")
      FileUtils.cp(Support::HostTarget.binary, copy)
      process = host_target(binary: copy)
      File.unlink(copy)
      expect(find(process.pid).status).to include(runtime: "ruby", deleted: true)
    end
  end

  it "is listed with all that can be traced" do
    process = host_target
    targets, = Probescope::Tracing::ProbedProcess.all
    expect(targets.map(&:pid)).to include(process.pid)
  end

  it "detects the end of the process" do
    process = host_target
    target = find(process.pid)
    expect(target).to be_alive
    process.stop(:KILL)
    expect(target).not_to be_alive
  end

  it "has a next step for a process that cannot be traced" do
    expect(refusal(4_194_304 + 1).message).to start_with("there is no process")
    expect(refusal(Process.pid))
      .to have_attributes(message: /does not have probescope loaded/, next_step: /probescope run/)

    thread = Thread.new { sleep }
    tid = await("the thread") { (Dir.children("/proc/self/task").map(&:to_i) - [Process.pid]).first }
    expect(refusal(tid)).to have_attributes(message: /is a thread of process #{Process.pid}/,
                                            next_step: "use -p #{Process.pid}")
  ensure
    thread&.kill
  end

  it "reports a zombie" do
    pid = Process.spawn("true")
    await("the zombie") { File.read("/proc/#{pid}/stat").include?(") Z") }
    expect(refusal(pid).message).to include("zombie")
  ensure
    Process.wait(pid)
  end
end
