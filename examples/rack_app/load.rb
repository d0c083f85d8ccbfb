# frozen_string_literal: true

# A load loop: each client sends a request as soon as it has an answer. Each connects anew after
# some requests, because otherwise one worker could keep all of them.
#
#   ruby load.rb --seconds 10
require "json"
require "net/http"
require "optparse"

options = { url: "http://127.0.0.1:9292", threads: 4, seconds: 10.0 }
OptionParser.new("Usage: ruby load.rb [options]   (Ctrl-C ends it; it prints what there is)\n\nHands in " \
                 "manifests and fetches labels in turn, and checks the answers.\n\nOptions:") do |parser|
  parser.on("--url URL", "the application (#{options[:url]})")
  parser.on("--threads N", Integer, "clients at a time (#{options[:threads]})")
  parser.on("--seconds S", Float, "how long (#{options[:seconds]})")
  parser.on("--requests N", Integer, "stop after so many requests")
  parser.on("--rate N", Float, "at most N requests a second, of all clients together")
  parser.on("--json", "one JSON object: requests, failed, seconds, per_second, latency_ms")
  parser.separator "\nExamples:\n  ruby load.rb --seconds 60\n" \
                   "  ruby load.rb --threads 1 --requests 1000 --json | jq .latency_ms.p99"
end.parse!(into: options)

# One connection and its answers.
class Client
  # ms of each answered request, and the number of wrong or missing answers.
  attr_reader :latencies, :failed

  # "(container C-7 (container C-6 ... goods ...) goods)": a few on every level, most at the bottom.
  def self.manifest(number, levels: 12)
    goods = ->(count) { Array.new(count) { |i| "good-#{i} #{((number * 7) + i) % 90}" }.join(" ") }
    "#{Array.new(levels) { |i| "(container C-#{number}-#{i} #{goods[2]} " }.join}#{goods[200]}#{")" * levels}"
  end

  REQUESTS_A_CONNECTION = 50
  MANIFESTS = Array.new(16) { |number| manifest(number) }.freeze

  def initialize(url)
    @url = url
    @latencies = []
    @failed = 0
    @number = 0
  end

  # Sends requests until the block returns false.
  def run(&go)
    while go.call
      begin
        Net::HTTP.start(@url.host, @url.port) { |http| converse(http, &go) }
      rescue SystemCallError, IOError, Net::ProtocolError, Net::HTTPBadResponse, Timeout::Error => e
        @failed += 1
        say("load: #{e.class}: #{e.message}")
        sleep 0.05 # and connects again
      end
    end
  end

  private

  # Prints a text only once: an ended application stays ended.
  def say(text)
    warn text if text != @said
    @said = text
  end

  # The caller has already checked the block for the first request.
  def converse(http)
    REQUESTS_A_CONNECTION.times do |i|
      break unless i.zero? || yield

      ask(http, @number += 1)
    end
  end

  def ask(http, number)
    started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    good = number.odd? ? hand_in(http, number) : fetch(http, number)
    @latencies << ((Process.clock_gettime(Process::CLOCK_MONOTONIC) - started) * 1000)
    @failed += 1 unless good
  end

  def hand_in(http, number)
    answer = http.post("/manifests", MANIFESTS[number % MANIFESTS.size], "Content-Type" => "text/plain")
    answer.is_a?(Net::HTTPOK) && answer.body.include?('"levels":12')
  end

  def fetch(http, number)
    answer = http.get("/labels/#{number}")
    answer.is_a?(Net::HTTPOK) && answer.body.include?('"checksum":"')
  end
end

now = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) }
stopped = false
%w[INT TERM].each { |signal| trap(signal) { stopped = true } }
started = now.call
left = options[:requests] || Float::INFINITY
sent = 0
wait = lambda do
  early = ((sent += 1) / options[:rate]) - (now.call - started)
  sleep(early) if early.positive?
end
go = lambda do
  wait.call if options[:rate]
  !stopped && now.call - started < options[:seconds] && (left -= 1) >= 0
end
clients = Array.new(options[:threads]) { Client.new(URI(options[:url])) }
clients.map { |client| Thread.new { client.run(&go) } }.each(&:join)
seconds = now.call - started

sorted = clients.flat_map(&:latencies).sort
percentile = ->(part) { sorted[((sorted.size - 1) * part).round]&.round(2) }
result = { requests: sorted.size, failed: clients.sum(&:failed), seconds: seconds.round(3),
           per_second: (sorted.size / seconds).round(1),
           latency_ms: { p50: 0.5, p90: 0.9, p99: 0.99, max: 1 }.transform_values(&percentile) }
if options[:json]
  puts JSON.generate(result)
else
  puts format("%<requests>d requests in %<seconds>.1f s: %<per_second>s a second, %<failed>d failed", result)
  puts format("latency: half within %<p50>s ms, 90 %% within %<p90>s ms, " \
              "99 %% within %<p99>s ms, longest %<max>s ms", result[:latency_ms])
end
exit(1) unless result[:failed].zero? && sorted.any?
