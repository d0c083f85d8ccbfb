# frozen_string_literal: true

require "openssl"
require "socket"
require "zlib"
require "opentelemetry/exporter/otlp"
require "opentelemetry/exporter/otlp_logs"
require "opentelemetry/exporter/otlp_metrics"

module Support
  # A backend that receives OTLP over HTTP and keeps it, or fails as configured.
  class OtlpServer
    REQUESTS = {
      "/v1/traces" => Opentelemetry::Proto::Collector::Trace::V1::ExportTraceServiceRequest,
      "/v1/logs" => Opentelemetry::Proto::Collector::Logs::V1::ExportLogsServiceRequest,
      "/v1/metrics" => Opentelemetry::Proto::Collector::Metrics::V1::ExportMetricsServiceRequest
    }.freeze

    # The ways in which backends fail, with the behaviour for each: {"hangs" => :hang, ...}.
    # retry_after: seconds.
    def self.failures(retry_after:)
      {"is down" => :down, "answers 503" => "503 Service Unavailable",
       "answers 429, Retry-After: #{retry_after}" => "429 Too Many Requests\r\nRetry-After: #{retry_after}",
       "resets connections" => :reset, "hangs" => :hang}
    end

    # times: when each request came, whatever its outcome. headers: those of each request.
    attr_reader :times, :headers

    # tls: the server's OpenSSL::SSL::SSLContext, if it encrypts.
    def initialize(tls: nil)
      @tls = tls
      @server = TCPServer.new("127.0.0.1", 0)
      @port = @server.addr[1]
      @behaviour = :take
      @kept = Hash.new { |hash, path| hash[path] = [] }
      @times = []
      @headers = []
      @sockets = []
      @threads = [Thread.new { accept }]
    end

    def endpoint = "http#{"s" if @tls}://127.0.0.1:#{@port}"

    # :take, :part (rejects one log record of each request), :down (does not listen), :reset, :hang,
    # :trickle (a slow answer without end), :endless (a fast answer without end), :endless_head,
    # :bomb (200 MiB in 1 MiB of gzip), :garble (no HTTP), or an answer such as "503 Service
    # Unavailable\r\nRetry-After: 2".
    def behaviour=(wanted)
      was_down = @behaviour == :down
      @behaviour = wanted
      @bomb ||= compressed_zeros(200) if wanted == :bomb
      if wanted == :down then stop
      elsif was_down then start
      end
    end

    # Returns [[attributes of the resource, span], ...].
    def spans
      @kept["/v1/traces"].flat_map(&:resource_spans).flat_map do |one|
        of(one, one.scope_spans.flat_map(&:spans))
      end
    end

    def records
      @kept["/v1/logs"].flat_map(&:resource_logs).flat_map do |one|
        of(one, one.scope_logs.flat_map(&:log_records))
      end
    end

    def span_ids = spans.map { |_, span| span.span_id }.uniq

    def metrics
      @kept["/v1/metrics"].flat_map(&:resource_metrics).flat_map do |one|
        of(one, one.scope_metrics.flat_map(&:metrics))
      end
    end

    # Returns {name => value}.
    def self.attributes(list) = list.to_h { |one| [one.key, one.value.public_send(one.value.value)] }

    def pid = 0
    def state = "OTLP server: #{@times.size} requests\n"

    def kill_all
      stop
      @threads.each(&:kill)
    rescue IOError
      nil
    end

    private

    def stop
      @server.close
      @sockets.each { |socket| socket.close unless socket.closed? }
    end

    def start
      @server = TCPServer.new("127.0.0.1", @port)
      @threads << Thread.new { accept }
    end

    def of(one, items) = items.map { |item| [self.class.attributes(one.resource.attributes), item] }

    def accept
      loop do
        socket = @server.accept
        @sockets << socket
        @threads << Thread.new { serve(socket) }
      end
    rescue IOError, Errno::EBADF
      nil
    end

    def encrypted(socket)
      return socket unless @tls

      OpenSSL::SSL::SSLSocket.new(socket, @tls).tap(&:accept)
    end

    def serve(socket)
      socket = encrypted(socket)
      while (head = socket.gets("\r\n\r\n"))
        body = socket.read(head[/^content-length: (\d+)/i, 1].to_i)
        @times << Process.clock_gettime(Process::CLOCK_MONOTONIC)
        @headers << head
        answer(socket, head, body)
      end
    rescue IOError, SystemCallError, OpenSSL::SSL::SSLError
      nil
    end

    def answer(socket, head, body)
      case @behaviour
      when :take then keep(socket, head, body)
      when :part then part(socket, head, body)
      when :hang then sleep
      when :trickle then trickle(socket)
      when :endless then endless(socket, "HTTP/1.1 503 Busy\r\n\r\n")
      when :endless_head then endless(socket, "HTTP/1.1 503 Busy\r\nX: ")
      when :bomb then bomb(socket)
      when :garble
        socket.write("garbled\r\n")
        socket.close
      when :reset
        socket.setsockopt(Socket::Option.linger(true, 0))
        socket.close
      else socket.write("HTTP/1.1 #{@behaviour}\r\nContent-Length: 0\r\n\r\n")
      end
    end

    def trickle(socket)
      socket.write("HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n")
      loop do
        socket.write(" ")
        sleep 0.1
      end
    end

    def endless(socket, head)
      socket.write(head)
      loop { socket.write("x" * (1 << 20)) }
    end

    def bomb(socket)
      socket.write(
        "HTTP/1.1 400 Bad\r\nContent-Encoding: gzip\r\nContent-Length: #{@bomb.bytesize}\r\n\r\n#{@bomb}"
      )
    end

    def compressed_zeros(mebibytes)
      zeros = "\0" * (1 << 20)
      gzip = Zlib::Deflate.new(1, 31)
      Array.new(mebibytes) { gzip.deflate(zeros) }.join + gzip.finish
    end

    def keep(socket, head, body, answer = "")
      body = Zlib.gunzip(body) if head.match?(/^content-encoding: gzip/i)
      path = head[/\APOST (\S+)/, 1]
      @kept[path] << REQUESTS.fetch(path).decode(body) if REQUESTS.key?(path)
      socket.write("HTTP/1.1 200 OK\r\nContent-Length: #{answer.bytesize}\r\n\r\n#{answer}")
    end

    def part(socket, head, body)
      success = Opentelemetry::Proto::Collector::Logs::V1::ExportLogsPartialSuccess.new(
        rejected_log_records: 1, error_message: "too\told"
      )
      answer =
        Opentelemetry::Proto::Collector::Logs::V1::ExportLogsServiceResponse.new(partial_success: success)
      keep(socket, head, body, answer.class.encode(answer))
    end
  end
end
