# frozen_string_literal: true

require "json"
require_relative "../tracing/clock"
require_relative "../tracing/output"
require_relative "../tracing/text"
require_relative "../version"
require_relative "counters"
require_relative "endpoints"
require_relative "exporters"
require_relative "fair_queue"
require_relative "resource"
require_relative "sender"
require_relative "source"
require_relative "transport"

module Probescope
  module Otel
    # The unprivileged half of the bridge. It reads the output of the supervisor and of bpftrace
    # from one pipe, and exports it. It ends when the pipe is closed.
    class Exporter
      # The most items of each signal that wait for the backend, over all processes.
      ROOM = {"traces" => 16_384, "logs" => 4096}.freeze
      # The size of the SDK's batch processors.
      BATCH = 512
      PAUSE = 1.0
      TURN = 0.25 # seconds between two checks of what waits
      REPORT_EVERY = 60.0
      # Seconds for the last export, where the supervisor sends no limit.
      FLUSH = 3.5
      # The part of FLUSH that is reserved for the last figures, which are the bridge's own.
      LAST = 1.0
      # The beginning of each line from the supervisor.
      OURS = "{\"is\""
      # Seconds after a process has ended in which lines of it may still be read.
      LATE = 2.0
      NONE = %i[lost_by_the_kernel details_suppressed names_lost unsampled late not_costly sites_left_out
                rows_dropped waiting]
             .to_h { |name| [name, 0] }
      # Seconds until the two clocks are compared again.
      COMPARE = 10

      # options: {endpoint:, exceptions:, metrics:}. log: a stream for lines.
      def initialize(input, options, log: $stderr)
        @input = input
        @options = options
        @log = log
        @scope = OpenTelemetry::SDK::InstrumentationScope.new("probescope", VERSION)
        @sources = {}
        @leaving = {} # pid => when its source is removed
        @strangers = @dropped_unread = @dropped_events = @cut_short = 0
        @received = Hash.new(0)
        @past = NONE.dup
        @output = Tracing::Output.new { |text| printed(text) }
        @compared = -COMPARE
        start_senders(Endpoints.new(options[:endpoint]))
      end

      def run
        read until @ended
        finish
      rescue Interrupt
        finish
      end

      private

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      def start_senders(endpoints)
        silence
        @queues = ROOM.transform_values { |room| FairQueue.new(room) }
        # Figures are cumulative, so a process's newest figures replace its older ones.
        if @options[:metrics]
          points = ->(metrics) { metrics.sum { |one| one.data_points.size } }
          @queues["metrics"] = FairQueue.new(Float::INFINITY, latest: true, weigh: points)
          @counters = Counters.new(@options[:attributes], @scope)
          @metrics_every = Transport.metric_interval
          Transport.complaint&.then { |text| say(text) }
          @collected = now
        end
        @senders = @queues.to_h { |signal, queue| [signal, sender(signal, queue, endpoints)] }
      end

      def sender(signal, queue, endpoints)
        transport = Transport.new(signal, authorization: endpoints.authorization(signal))
        exporter = Exporters::BY_SIGNAL.fetch(signal).new(endpoint: endpoints[signal], transport: transport)
        batch, pause = signal == "metrics" ? [1, 0.1] : [BATCH, PAUSE]
        Sender.new(signal, queue, exporter,
                   batch: batch, pause: pause, timeout: transport.timeout, say: method(:say))
      end

      # The SDK logs each failure; here the senders do that.
      def silence
        OpenTelemetry.logger = Logger.new(File::NULL)
      end

      # The text may contain an answer of the backend.
      def say(text) = @log.puts("probescope otel: #{Tracing::Text.clean(text)}")

      def read
        if @input.wait_readable(TURN)
          @rest = "#{@rest}#{@input.readpartial(1 << 18)}"
          *lines, @rest = @rest.split("\n", -1)
          lines.each do |line|
            line.start_with?(OURS) ? told(JSON.parse(line, symbolize_names: true)) : @output << line
          end
        end
        turn if @turned.nil? || now - @turned > TURN
      rescue EOFError
        @ended = true
      end

      def turn
        @turned = now
        @sources.each_value { |source| source.expire(@turned) }
        @leaving.select { |_, due| due <= @turned }.each_key { |pid| gone(pid) }
        collect if @collected && @turned - @collected >= @metrics_every
        report if @turned - (@reported ||= @turned) >= REPORT_EVERY
      end

      # Handles a message of the supervisor.
      def told(message)
        case message[:is]
        when "target" then meet(message)
        when "gone" then @leaving[message[:pid]] = now + LATE
        when "limited" then @sources[message[:pid]]&.limited(*message.values_at(:probes, :functions))
        when "tracing" then settle.each(&:traced)
        when "cut" then @cut_short += 1
        when "end" then @flush = message[:within]
        when "dropped" then @dropped_unread, @dropped_events = message.values_at(:lines, :events)
        end
      end

      def source(message)
        pid = message[:pid]
        resource = Resource.of(message, @options[:service_name], @options[:attributes])
        Source.new(pid, resource, @scope,
                   say: method(:say), exceptions: @options[:exceptions], metrics: @options[:metrics],
                   offset: method(:offset), limits: message[:limits],
                   spans: ->(spans) { @queues["traces"].push(pid, spans) },
                   logs: ->(records) { @queues["logs"].push(pid, records) })
      end

      # An earlier process may have had the same number.
      def meet(message)
        gone(message[:pid])
        @sources[message[:pid]] = source(message)
        share_room
      end

      def share_room = @sources.each_value { |source| source.processes = @sources.size }

      # Settles the counts of a bpftrace that has ended.
      def settle
        told = @output.maps.delete("told") || {}
        @sources.each { |pid, source| source.settle(told[pid.to_s]&.to_i) }.values
      end

      def gone(pid)
        @leaving.delete(pid)
        source = @sources.delete(pid) or return
        share_room
        source.settle(nil)
        source.finish
        push_metrics(pid, source) if @collected
        counters(source).each { |name, number| @past[name] += number }
      end

      # The difference from bpftrace's clock to the time of day, in ns.
      def offset
        if now - @compared > COMPARE
          @compared = now
          @clock = Tracing::Clock.new
        end
        @clock.offset
      end

      def printed(text)
        event = Lines.parse(text) or return @received["unread"] += 1
        source = @sources[event.pid] or return @strangers += 1
        return source.name(event.address, event.name) if event.is_a?(Lines::Name)

        @received[Lines::KINDS.fetch(event.class)] += 1
        source.take(event, now)
      end

      def collect
        @collected = now
        @sources.each { |pid, source| push_metrics(pid, source) }
        push_counters
      end

      def push_counters = @queues["metrics"].push(:bridge, @counters.collect(figures, @queues))

      def push_metrics(pid, source) = @queues["metrics"].push(pid, source.figures)

      def counters(source)
        {lost_by_the_kernel: source.lost, details_suppressed: source.suppressed, names_lost: source.unnamed,
         unsampled: source.spans.unsampled, late: source.assembly.late, not_costly: source.not_costly,
         sites_left_out: source.sites_left_out, rows_dropped: source.rows_dropped, waiting: source.waiting}
      end

      def report
        @reported = now
        say(JSON.generate(figures))
      end

      # Every received call and exception is exported, dropped, left out (unsampled, not_costly) or
      # waiting.
      def figures
        totals = @sources.each_value.map { |source| counters(source) }.push(@past)
                         .reduce { |one, other| one.merge(other) { |_, a, b| a + b } }
        # An event that was dropped here also counts as lost in its process's Source.
        totals[:lost_by_the_kernel] = [totals[:lost_by_the_kernel] - @dropped_events, 0].max
        signals = @senders.to_h do |signal, sender|
          exported, waiting = sender.exported, sender.waiting
          dropped = {@queues[signal].reason => @queues[signal].dropped, **sender.dropped}
          [signal, {exported: exported, waiting: waiting,
                    dropped: dropped.reject { |_, number| number.zero? }}]
        end
        {received: @received, of_other_processes: @strangers, lost_events: @output.lost_events,
         dropped_unread: @dropped_unread, cut_short: @cut_short, **totals, **signals}
      end

      def finish
        limit = now + (@flush || FLUSH)
        settle
        gone(@sources.first.first) while @sources.any?
        ending = @senders.values_at("traces", "logs").map do |sender|
          Thread.new { sender.finish([limit - LAST - now, 0.1].max) }
        end
        ending.each(&:join)
        if @collected
          push_counters
          @senders["metrics"].finish([limit - now, 0.1].max)
        end
        report
      end
    end
  end
end
