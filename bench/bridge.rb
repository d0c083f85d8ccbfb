# frozen_string_literal: true

# How many slow calls a second the bridge's exporter takes in and sends on, on one core, and where the time goes.
#
#   bundle exec ruby bench/bridge.rb [events]
#
# Lines as bpftrace prints them, of 12 calls within each other, go into a real exporter, which sends them to a server of ours that
# takes everything. CPU time of the exporter's process; the server is another one.
$LOAD_PATH.unshift(File.expand_path("../lib", __dir__))
require "socket"
require "stackprof"
require "probescope/otel/exporter"

NEST = 12
events = Integer(ARGV.first || 120_000)

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

def line(text) = "#{JSON.generate({type: "printf", data: "#{text}\n"})}\n"

reader, writer = IO.pipe
feeder = Process.fork do
  reader.close
  writer.write(JSON.generate({is: "target", pid: 7, resource: {"service.name" => "bench"}}), "\n")
  (0...NEST).each { |i| writer.write(line("N 7 #{1000 + i}\tShop::Order#step#{i}")) }
  writer.write(line("N 7 2000\t/srv/shop/app/models/order.rb"))
  at = Process.clock_gettime(Process::CLOCK_BOOTTIME, :nanosecond)
  (events / NEST).times do |round|
    trace = format("00-%032x-%016x-01", round + 1, round + 1)
    writer.write((0...NEST).map do |i|
      id = (round * NEST) + NEST - i
      line("S 7 #{at} #{1000 + i} 2000 #{12_000_000 + i} 1000 #{i} 7 0 #{id} #{i == NEST - 1 ? 0 : id - 1}\t#{trace}")
    end.join)
  end
end
writer.close

exporter = Probescope::Otel::Exporter.new(reader, {endpoint: "http://127.0.0.1:#{server.addr[1]}", exceptions: "none"})
cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
profile = StackProf.run(mode: :cpu, interval: 1000) { exporter.run }
cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - cpu
[sink, feeder].each { |pid| Process.kill(:KILL, pid) }
puts format("%d events, %.2f s of CPU: %.1f us an event, %d a second of one core; RSS %d MB", events, cpu, cpu / events * 1e6, events / cpu,
            File.read("/proc/self/status")[/VmRSS:\s+(\d+)/, 1].to_i / 1024)
StackProf::Report.new(profile).print_text(false, 25)
