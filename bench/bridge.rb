# frozen_string_literal: true

# Measures how many slow calls a second the bridge's exporter reads and sends, on one core, and
# where it spends the time.
#
#   bundle exec ruby bench/bridge.rb                     120,000 calls, as fast as possible
#   bundle exec ruby bench/bridge.rb 600000 10000        600,000 calls, at 10,000 a second
#
# A real exporter reads lines in bpftrace's format, of 12 nested calls each, and sends them to a
# test server that accepts everything. CPU time and memory are those of the exporter's process,
# which may use one CPU (taskset). The server and the source of the lines are other processes.
$LOAD_PATH.unshift(File.expand_path("../lib", __dir__))
require "socket"
require "stackprof"
require "stringio"
require "probescope/otel/exporter"

NEST = 12
events = Integer(ARGV[0] || 120_000)
rate = Integer(ARGV[1] || 0)

server = TCPServer.new("127.0.0.1", 0)
sink = Process.fork do
  loop do
    Thread.new(server.accept) do |socket|
      while (head = socket.gets("\r\n\r\n"))
        socket.read(head[/^content-length: (\d+)/i, 1].to_i)
        socket.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
      end
    end
  end
end

def clock = Process.clock_gettime(Process::CLOCK_MONOTONIC)

def memory = File.read("/proc/self/status")[/VmRSS:\s+(\d+)/, 1].to_i / 1024.0

def line(text) = "#{JSON.generate({type: "printf", data: "#{text}\n"})}\n"

reader, writer = IO.pipe
feeder = Process.fork do
  reader.close
  target = {is: "target", pid: 7, attributes: {"process.pid" => 7}, service_name: "bench",
            executable: "bench", published: nil}
  writer.write(JSON.generate(target), "\n")
  (0...NEST).each { |i| writer.write(line("N 7 #{1000 + i}\tShop::Order#step#{i}")) }
  writer.write(line("N 7 2000\t/srv/shop/app/models/order.rb"))
  began = clock
  (events / NEST).times do |round|
    ahead = rate.zero? ? 0 : (round * NEST / rate.to_f) - (clock - began)
    sleep(ahead) if ahead.positive?
    at = Process.clock_gettime(Process::CLOCK_BOOTTIME, :nanosecond)
    trace = format("00-%032x-%016x-01", round + 1, round + 1)
    writer.write((0...NEST).map do |i|
      id = (round * NEST) + NEST - i
      parent = i == NEST - 1 ? 0 : id - 1
      line("S 7 #{at} #{1000 + i} 2000 #{12_000_000 + i} 1000 #{i} 7 0 #{id} #{parent}\t#{trace}")
    end.join)
  end
end
writer.close
own = Process.pid
at_exit { [sink, feeder].each { |pid| Process.kill(:KILL, pid) } if Process.pid == own }

log = StringIO.new
options = {endpoint: "http://127.0.0.1:#{server.addr[1]}", exceptions: "none", attributes: {}}
exporter = Probescope::Otel::Exporter.new(reader, options, log: log)
system("taskset", "--all-tasks", "--pid", "--cpu-list", "0", Process.pid.to_s,
       out: File::NULL, exception: true)
seen = []
watch = Thread.new { loop { sleep(1).then { seen << memory } } }
cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
began = clock
profile = StackProf.run(mode: :cpu, interval: 1000) { exporter.run }
took = clock - began
cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - cpu
watch.kill
figures = JSON.parse(log.string.lines.last[/\{.*/])
traces = figures.fetch("traces")
puts format("%d events in %.1f s, %.2f s of CPU: %.1f us an event, %d a second of one core",
            events, took, cpu, cpu / events * 1e6, events / cpu)
puts format("received %d, exported %d, dropped %s",
            figures.dig("received", "slow_calls"), traces["exported"], traces["dropped"])
if seen.any?
  puts format("RSS: %.0f MB after a quarter of the time, %.0f MB at the end, %.0f MB at most",
              seen[seen.size / 4], seen.last, seen.max)
end
StackProf::Report.new(profile).print_text(false, 25)
