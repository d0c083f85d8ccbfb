# frozen_string_literal: true

require "spec_helper"

# The memory that the bridge's exporter needs for a process that makes up calls, names and
# exceptions as fast as they can be read. The lines have the format of bpftrace's
# (Probescope::Otel::Lines).
RSpec.describe "probescope otel's exporter and a process that makes up what it does", :slow,
               full: "computes for minutes beside other tests" do
  # In MiB above the exporter's memory at its start. With all calls kept, it was 246.
  most = 160
  lines = 200_000

  let(:script) do
    <<~RUBY
      require "probescope/otel/exporter"
      def peak = File.read("/proc/self/status")[/VmHWM:\\s+(\\d+)/, 1].to_i / 1024
      exporter = Probescope::Otel::Exporter.new($stdin, {endpoint: "http://127.0.0.1:9", exceptions: "costly",
                                                         metrics: true, attributes: {}})
      before = peak
      exporter.run
      puts "grew by \#{peak - before}"
    RUBY
  end
  let(:exporter) do
    keep(Support::Child.new(RbConfig.ruby, "-I#{Support::ROOT}/lib", "-e", script,
                            env: ENV.to_h, stdin: true))
  end

  def line(mark, *fields, text: "")
    JSON.generate(type: "printf", data: "#{[mark, 4711, *fields].join(" ")}\t#{text}\n")
  end

  # Returns the growth in MiB, and the last report. The block returns the lines of each number.
  def fed_with(numbers, &block)
    exporter.puts(JSON.generate(is: "target", pid: 4711, limits: false, attributes: {"process.pid": 4711},
                                executable: "ruby"))
    exporter.puts(JSON.generate(is: "tracing"))
    numbers.times.each_slice(1000) { |some| exporter.puts(some.map(&block).join("\n")) }
    exporter.close_stdin
    exporter.wait(within: 120)
    [exporter.out[/grew by (\d+)/, 1].to_i,
     JSON.parse(exporter.err.lines.grep(/slow_calls|raise_sites|lost_by/).last[/\{.*/])]
  end

  {"are their own callers" => ->(_) { [7, 7] }, "call each other" => lambda { |number|
    [number % 2, (number + 1) % 2].map(&:succ)
  }}.each do |what, ids|
    it "has a bound for calls that #{what}" do
      grown, report = fed_with(lines) do |number|
        line("S", number, 1, 2, 9, 9, 1, 4711, 0, *ids.call(number))
      end
      expect(grown).to be < most
      expect(report["received"]["slow_calls"]).to eq(lines)
      traces = report["traces"]
      expect(traces["exported"] + traces["waiting"] + traces["dropped"].values.sum).to eq(lines)
    end
  end

  it "has a bound for names and for lines that raise, and counts what it leaves out" do
    grown, report = fed_with(lines / 2) do |number|
      "#{line("N", number, text: "Name#{number}" * 10)}\n" \
      "#{line("E", number, number, 2, 3, number, 1, 1000, 0)}"
    end
    expect(grown).to be < most
    expect(report["sites_left_out"]).to eq((lines / 2) - 1024)
  end
end
