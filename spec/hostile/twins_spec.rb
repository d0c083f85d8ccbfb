# frozen_string_literal: true

require "spec_helper"
require "support/otlp_server"

# A copy of the library on another file system has the same inode number and the same contents. It
# must not replace the library of another process.
RSpec.describe "probescope otel and two libraries that look the same", :bpf do
  app = <<~RUBY
    eval("def slow = sleep(0.02)", TOPLEVEL_BINDING,
         #{File.join(Support::ROOT, "spec/otel/work.rb").inspect}, 1)
    puts "ready"
    $stdout.flush
    loop { slow }
  RUBY

  # script: leaves a copy of lib/ below /mnt, in its own mounts.
  def with_copy(app, script)
    command = "#{script} && exec #{RbConfig.ruby} -I/mnt/lib -r/mnt/lib/probescope/auto -e \"$1\""
    child = keep(Support::Child.new("unshare", "--mount", "sh", "-c", command, "sh", app))
    child.await_line(/^ready$/)
    child.pid
  end

  def library(pid) = File.read("/proc/#{pid}/maps")[%r{^\S+ \S+ \S+ (\S+ \d+) +\S*/probescope\.so$}, 1].split

  # Returns {pid => number of spans} of a bridge that traces both for a while.
  def spans(pids)
    server = keep(Support::OtlpServer.new)
    options = ["--slow", "1ms", "--exceptions", "none", "--endpoint", server.endpoint]
    bridge = probescope_start("otel", *pids.flat_map { |pid| ["-p", pid] }, *options)
    bridge.await_line(/attached to 2/, stream: :err, within: 60)
    await("spans", within: 60) { server.spans.size > 100 }
    expect(bridge.stop(:INT, within: 15)).to be_success, bridge.to_s
    [server.spans.map { |resource, _| resource["process.pid"] }.tally,
     server.spans.map { |_, span| span.span_id }]
  end

  it "traces both of them" do
    copy = "mount -t tmpfs -o mode=755 none /mnt && cp -r #{Support::ROOT}/lib /mnt/lib"
    pids = Array.new(2) { with_copy(app, copy) }
    (one, number), (other, same) = pids.map { |pid| library(pid) }
    expect([number, one == other]).to eq([same, false])
    found, = spans(pids)
    expect(found.keys).to match_array(pids)
  end

  it "counts once the calls of one file in two overlays" do
    Dir.mktmpdir do |lower|
      File.chmod(0o755, lower)
      FileUtils.cp_r("#{Support::ROOT}/lib", lower)
      overlay = "mount -t tmpfs -o mode=755 none /mnt && mkdir /mnt/upper /mnt/work && " \
                "mount -t overlay overlay -o lowerdir=#{lower},upperdir=/mnt/upper,workdir=/mnt/work /mnt"
      pids = Array.new(2) { with_copy(app, overlay) }
      found, ids = spans(pids)
      expect(found.keys).to match_array(pids)
      expect(ids.uniq.size).to eq(ids.size)
    end
  end
end
