# frozen_string_literal: true

require "open3"

# The command is not required: every tool that supports USDT sees the probes.
RSpec.describe "Plain tools" do
  let(:deepstack) { target("examples/deepstack.rb").ready }

  def installed?(tool) = system("sh", "-c", "command -v #{tool} >/dev/null")

  it "bpftrace -l lists every probe of the library", :bpf do
    listed = tool("bpftrace", "-l", "usdt:#{Support::LIBRARY}:*").scan(/:probescope:(\w+)/).flatten
    expect(listed.uniq).to match_array(stapsdt_notes(Support::LIBRARY).map(&:name))
  end

  it "bpftrace -l -p lists them for a running process", :bpf do
    listed = tool("bpftrace", "-l", "usdt:*:probescope:*", "-p", deepstack.pid.to_s)
    expect(listed).to include("probescope:exception__raise")
  end

  it "a bpftrace one-liner counts raises by type and place", :bpf do
    program = "usdt:*:probescope:exception__raise { @[str(arg0), str(arg1), arg2] = count(); }"
    one_liner = tracer(program, pid: deepstack.pid).attached(deepstack, "exception__raise")
    before = deepstack.counters["raises"]
    await("10,000 more raises") { deepstack.counters["raises"] > before + 10_000 }
    printed = one_liner.finish
    expect(printed).to match(%r{@\[NoMethodError, .*examples/deepstack\.rb, 24\]: \d+})
    expect(printed[/: (\d+)$/, 1].to_i).to be >= 10_000
  end

  it "bpftrace reads the struct behind arg5, at the documented offset", :bpf do
    fields = "str(*(uint64*)(arg5+8), 64), str(*(uint64*)arg5, 64), arg3"
    program = "usdt:*:probescope:exception__raise { printf(\"%s|%s|%d\\n\", #{fields}); exit(); }"
    line = tracer(program, pid: deepstack.pid).await_line(/\|/).string
    expect(line).to match(%r{\A.*initialize\|.*examples/deepstack\.rb\|\d+$})
  end

  it "perf list shows them once the library is in its build-id cache", :bpf do
    skip "perf is not installed" unless installed?("perf")
    Dir.mktmpdir do |cache|
      perf = ["perf", "--buildid-dir", cache]
      out, status = Open3.capture2e(*perf, "buildid-cache", "--add", Support::LIBRARY)
      skip "this perf cannot: #{out}" unless status.success?

      expect(tool(*perf, "list", "sdt")).to include("sdt_probescope:exception__raise")
    end
  end

  it "bcc's tplist shows them in the process" do
    tplist = %w[tplist-bpfcc tplist].find { |name| installed?(name) }
    skip "bcc is not installed" unless tplist
    expect(tool(tplist, "-p", deepstack.pid.to_s)).to match(/probescope.*exception__raise/)
  end
end
