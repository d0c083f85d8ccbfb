# frozen_string_literal: true

require_relative "stream"
require_relative "../tracing/call_tree"
require_relative "../tracing/clock"
require_relative "../tracing/nearest"
require_relative "../tracing/numbered"

module Probescope
  module Commands
    # The calls of one thread, live.
    class Flow < Stream
      PROGRAM = "flow.bt"
      WIDENED = true
      USAGE = "flow -p PID [options]"
      ABOUT = <<~TEXT
        Which function calls which? Shows the calls of one thread as they happen, indented. By default it is
        the thread that makes most calls in the first second. A call that makes no call has one line. Any
        other call has a line when it begins, and a line with = before its name when it returns. Each call
        costs the process some microseconds meanwhile. A busy program makes more calls than can be shown;
        lost ones are counted. --function shows only a part of the calls.

          ELAPSED  time in the function with all callees
          SELF     time in the function itself

        The last line shows the interval: the first call that is shown began after the hooks were in. JSON
        has an object for each second instead ("event": "interval"), after the calls of that second.
      TEXT
      EXAMPLES = <<~TEXT
        probescope flow -p 4711 --function 'Order#total' --top 50   50 lines below one function
        probescope flow -p 4711 --min 10ms                          calls of 10 ms and more, and their callers
        probescope flow -p 4711 --workers                           the busiest thread of all workers
        probescope flow -p 4711 --json | jq 'select(.outcome == "raised")'
      TEXT
      # Events that are kept until the thread is chosen.
      CHOICE = 50_000
      # Names are cut to this length.
      NAME_BYTES = 63
      # After so many seconds without a call of --function, a note is printed.
      PATIENCE = 3

      # mark: ">" or "<". figures and names: as flow.bt prints them.
      Event = Struct.new(:mark, :thread, :figures, :names)
      # The time between two flushes of the process. from, to: on bpftrace's clock; equal for the
      # first flush.
      Second = Struct.new(:from, :to, :wall_ns, :cpu_ns, :looking_ns)

      def initialize
        super
        @top = 0
        @min_ns = 0
        @shown = 0
        @seconds_passed = 0
        @processes = Hash.new { |hash, pid| hash[pid] = Tracing::Numbered.new }
        @seen = Hash.new(0) # [pid, thread] => calls; used until the thread is chosen
        @begun = {} # process => end of the time without events, on bpftrace's clock
        @span = nil # the seconds of the process that is shown, added up
        @uncovered = false # whether something was shown since the end of @span
        forget_waiting
      end

      private

      def more_options(parser)
        parser.on("--function NAME",
                  "only this function, as `probescope calls` names it, and what it calls") do |text|
          @function = text.b.byteslice(0, NAME_BYTES).force_encoding(Encoding::UTF_8).scrub("")
        end
        parser.on("--min TIME", "only calls of that length and their callers: 10ms, 500us, 1s") do |text|
          @min_ns = duration(text, "--min 10ms")
        end
        parser.on("--thread ID", Integer, "the thread, by its number (`top -H`)") { |id| @thread = id }
        top_option(parser, "ends after N lines")
        parser.on("--all", "functions of gems, packages and the standard library too") { @all = true }
      end

      def program_arguments = @function ? [@function] : []

      def prepare
        @clock = Tracing::Clock.new
        @tree = Tracing::CallTree.new(@min_ns) { |call| print_call(call) }
      end

      # Formats: "> number pid thread context depth line \t function \t file", "< ... depth elapsed
      # self outcome \t function", "= number pid from to wall cpu looking".
      def receive(text)
        head, names = text.split("\t", 2)
        mark, *words = head.split
        number, pid, thread, *figures = words.map { |word| Integer(word, exception: false) }
        return if pid.nil? || (@pid && pid != @pid)

        case mark
        when ">", "<"
          @processes[pid].push(number, Event.new(mark, thread, figures, names.to_s)) do |event|
            take(pid, event)
          end
        when "=" then tick(pid, number, Second.new(thread, *figures))
        end
      end

      # A flush of a process: a second has passed in it, or its first second begins. number: how
      # many events the process has fired so far.
      def tick(pid, number, second)
        @processes[pid].fired(number) { |event| take(pid, event) }
        @processes[pid].mark(number, second) { |event| take(pid, event) }
        choose unless @pid
        @tree.pause
        return if second.from == second.to

        @seconds_passed += 1
        return unless @function && @pid.nil? && @seconds_passed == PATIENCE * @processes.size

        say("#{@function} has not been called yet; Ctrl-C shows which functions were")
      end

      # event: an Event, the number of lost events, or a Second.
      def take(pid, event)
        return follow(event) if @pid

        @waiting[pid] << event
        choose if (@kept += 1) >= CHOICE
      end

      def choose
        @waiting.each do |pid, events|
          events.grep(Event).each { |event| @seen[[pid, event.thread]] += 1 } if wanted?(pid)
        end
        fitting = @thread ? @seen.select { |(_, thread), _| thread == @thread } : @seen
        waiting = @waiting
        forget_waiting
        if fitting.empty?
          return waiting.each { |pid, events| @begun[pid] = events.grep(Second).last&.to || @begun[pid] }
        end

        (@pid, @thread), = fitting.max_by(&:last)
        passed(Second.new(@begun[@pid], @begun[@pid], 0, 0, 0)) if @begun[@pid]
        waiting[@pid].each { |event| follow(event) }
      end

      def forget_waiting
        @waiting = Hash.new { |hash, pid| hash[pid] = [] }
        @kept = 0
      end

      def follow(event)
        return lost(event) if event.is_a?(Integer)
        return passed(event) if event.is_a?(Second)
        return unless event.thread == @thread
        # A call that was running when the hooks were installed has a return, but no entry.
        return unless @entered ||= event.mark == ">"

        context, depth, *figures = event.figures
        if event.mark == ">"
          # A function's name is more likely to contain a tab than a file's name.
          function, _, file = event.names.rpartition("\t")
          @tree.enter(context, depth, function, file, figures.first)
        else
          @tree.leave(context, depth, *figures, event.names)
        end
      end

      # The first flush gives only the begin of the interval; nothing before it was covered.
      def passed(second)
        return if @closed

        @tree.pause
        @span = @span ? added(@span, second) : second
        return if second.from == second.to

        show(interval_json(second)) if @json
        @uncovered = false
      end

      def added(one, next_one)
        sums = %i[wall_ns cpu_ns looking_ns].map { |field| one[field] + next_one[field] }
        Second.new(one.from, next_one.to, *sums)
      end

      def lost(number)
        @tree.forget
        return out(json({event: "lost", count: number})) if @json

        out("... #{Tracing::Figure.count(number)} events were lost")
      end

      def print_call(call)
        return out(json({pid: @pid, thread_id: @thread, **call})) if @json

        if @context && @context != call[:context_id]
          out("-- another fiber or greenlet (context #{call[:context_id]})")
        end
        @context = call[:context_id]
        out(renderer.text(call))
      end

      def out(text)
        return if @closed

        title if @shown.zero? && !@json
        @uncovered = true
        show(text)
        enough if (@shown += 1) == @top
      end

      def title
        show("flow of process #{@pid}, thread #{@thread}")
        show(renderer.heading)
      end

      def finish(result)
        shown_processes.each do |pid, events|
          events.rest(last_number(result, pid)) { |event| take(pid, event) }
        end
        choose unless @pid
        tell_nothing(result) if @shown.zero? && !@closed
        tell_interval
      end

      def missing(result)
        shown_processes.sum { |pid, events| wanted?(pid) ? events.missing(last_number(result, pid)) : 0 }
      end

      def shown_processes = @pid ? @processes.slice(@pid) : @processes

      # The number of the process's last event. nil if the process goes on: its events after the
      # last flush are not in the interval, and bpftrace drops some of them while it ends.
      def last_number(result, pid) = result&.ended?(pid) ? result.last_number(pid) : nil

      def tell_nothing(result)
        raise uncalled(result) if @function && @seen.empty?
        raise other_threads(result) if @thread && @pid.nil? && @seen.any?

        took = " took so long" if @min_ns.positive?
        show "  no call of the application#{took} #{ALL_HINT}" unless @json
      end

      # The events after the last flush have no end of interval: the process ended, or --top was
      # reached.
      def tell_interval
        return unless @span
        return ["", span_text].each { |line| show(line) } unless @json

        show(interval_json(Second.new(@span.to))) if @uncovered
      end

      def span_text
        if @span.from == @span.to
          return "from #{Tracing::Clock.of_day(@clock.time(@span.to))} until the last line"
        end

        shares = [[@span.cpu_ns, @span.wall_ns], [@span.looking_ns, @span.cpu_ns]]
        cpu, looking = shares.map { |one| Tracing::Figure.share(Tracing::Figure.ratio(*one)) }
        "#{Tracing::TableRenderer.span(@clock.time(@span.from), @clock.time(@span.to))}: " \
          "#{cpu} CPU, #{looking} of it for looking" \
          "#{"; the last lines came after that" if @uncovered}"
      end

      def interval_json(second)
        from, to = [second.from, second.to].map { |moment| moment && @clock.time(moment) }
        json({pid: @pid, thread_id: @thread, event: "interval",
              **interval_of(from, to, *second.values_at(2..))})
      end

      def uncalled(result)
        called = result.values("other").uniq
        near = if called.empty?
                 "no function was"
               else
                 "the nearest of those that were: #{Tracing::Nearest.names(@function, called).join(", ")}"
               end
        Tracing::Error.new("#{@function.inspect} was not called in that time; #{near}",
                           "probescope calls -p #{result.pids.first}")
      end

      def other_threads(result)
        busiest = @seen.max_by(3, &:last).map { |(_, thread), _| thread }
        Tracing::Error.new("thread #{@thread} called nothing in that time; " \
                        "those that did: #{busiest.join(", ")}",
                           "top -H -p #{result.pids.first}")
      end
    end
  end
end
