# frozen_string_literal: true

require_relative "streamed"
require_relative "../host/call_tree"
require_relative "../host/numbered"

module Probescope
  module Commands
    # The calls of one thread, live.
    class Flow < Streamed
      PROGRAM = "flow.bt"
      WIDENED = true
      USAGE = "flow -p PID [options]"
      ABOUT = <<~TEXT
        Which function calls which? Shows the calls of one thread as they happen, indented: by default of the thread that makes
        most calls in the first second. A call that calls nothing has one line; another one has a line when it begins and one,
        with = before its name, when it returns. Each call costs the process some microseconds while this runs, and a busy
        program makes more of them than can be shown: what is lost is counted. --function shows little of much.

          ELAPSED  time in the function with everything that it calls
          SELF     time in the function itself
      TEXT
      EXAMPLES = <<~TEXT
        probescope flow -p 4711 --function 'Order#total' --top 50   50 lines below one function
        probescope flow -p 4711 --min 10ms                          calls of 10 ms and more, and their callers
        probescope flow -p 4711 --json | jq 'select(.outcome == "raised")'
      TEXT
      HEADING = "#{"ELAPSED".rjust(9)}#{"SELF".rjust(10)}  CALL".freeze
      # Events kept back until the thread is chosen.
      CHOICE = 50_000
      DEEPEST = 60
      UNITS = {"ns" => 1, "us" => 1e3, "ms" => 1e6, "s" => 1e9}.freeze
      # A name is told up to here.
      NAME_BYTES = 63

      Event = Struct.new(:mark, :pid, :thread, :rest, :names)

      def initialize
        super
        @top = 0
        @min_ns = 0
        @shown = 0
        @waiting = []
        @processes = Hash.new { |hash, pid| hash[pid] = Host::Numbered.new }
        @tree = Host::CallTree.new(0) { |call| print_call(call) }
        @ticks = 0
      end

      private

      # One thread is shown, so one process is traced.
      def process_options(parser)
        parser.on("-p", "--pid PID", "the process") do |text|
          raise CLI::Usage.new("one process at a time", "probescope flow -p #{@pids.first}") if @pids.any?

          @pids = [process_id(text)]
        end
      end

      def more_options(parser)
        parser.on("--function NAME", "only this function, as `probescope calls` names it, and what it calls") do |text|
          @function = text.b.byteslice(0, NAME_BYTES).force_encoding(Encoding::UTF_8).scrub("")
        end
        parser.on("--min TIME", "only calls of that length and their callers: 10ms, 500us, 1s") { |text| @min_ns = duration(text) }
        parser.on("--thread ID", Integer, "the thread, by its number (`top -H`)") { |id| @thread = id }
        parser.on("--top N", Integer, "ends after N lines") do |top|
          raise CLI::Usage.new("--top takes 0 or more", "--top 50") if top.negative?

          @top = top
        end
        parser.on("--all", "functions of gems and of the standard library too") { @all = true }
      end

      def duration(text)
        number, unit = text.match(/\A(\d+(?:\.\d+)?)(ns|us|ms|s)\z/)&.captures
        raise CLI::Usage.new("#{text.inspect} is no time", "--min 10ms") unless number

        (number.to_f * UNITS.fetch(unit)).round
      end

      def program_arguments = @function ? [@function] : []

      def call
        @tree = Host::CallTree.new(@min_ns) { |call| print_call(call) }
        super
      end

      # "> number pid thread context depth line \t function \t file", "< ... depth elapsed self outcome \t function", "= number pid"
      def receive(text)
        head, names = text.split("\t", 2)
        mark, *words = head.split
        number, pid, thread, *rest = words.map { |word| Integer(word, exception: false) }
        return unless pid && wanted?(pid)

        case mark
        when ">", "<" then @processes[pid].push(number, Event.new(mark, pid, thread, rest, names.to_s)) { |event| take(event) }
        when "=" then tick(number, pid)
        end
      end

      def tick(number, pid)
        @processes[pid].fired(number) { |event| take(event) }
        choose if @waiting.any?
        @tree.pause
        @ticks += 1
        say("#{@function} has not been called yet; Ctrl-C tells which functions were") if @ticks == 3 && @function && number.zero?
      end

      # An event, or the number of those that are missing here.
      def take(event)
        return if @closed
        return lost(event) if event.is_a?(Integer)
        return follow(event) if event.thread == @thread
        return if @thread

        @waiting << event
        choose if @waiting.size >= CHOICE
      end

      def choose
        @thread = @waiting.group_by(&:thread).max_by { |_, events| events.size }.first
        waiting = @waiting
        @waiting = []
        waiting.each { |event| follow(event) if event.thread == @thread && !@closed }
      end

      def follow(event)
        context, depth, *figures = event.rest
        if event.mark == ">"
          function, file = event.names.split("\t", 2)
          @tree.enter(context, depth, function, file, figures.first)
        else
          @tree.leave(context, depth, *figures, event.names)
        end
      end

      def lost(number)
        @tree.forget
        out(@json ? Host::Text.json({event: "lost", count: number}) : "... #{Host::Figure.count(number)} events were lost")
      end

      def print_call(call)
        return if @closed
        return out(Host::Text.json({thread_id: @thread, **call})) if @json

        if @context && @context != call[:context_id] then out("-- another fiber (context #{call[:context_id]})") end
        @context = call[:context_id]
        out(line(call))
      end

      def line(call)
        times = [call[:elapsed_ns], call[:self_ns]].map { |time| time ? Host::Figure.time(time) : "" }
        name = "#{"= " if call[:event] == "leave"}#{Host::Text.clean(call[:function])}"
        place = "  #{Host::Text.clean(call[:file])}:#{call[:line]}" if call[:event] != "leave" && call[:file]
        outcome = "  #{call[:outcome]}" unless [nil, "returned"].include?(call[:outcome])
        "#{times[0].rjust(9)}#{times[1].rjust(10)}  #{"  " * [call[:depth], DEEPEST].min}#{name}#{outcome}#{place}"
      end

      def out(text)
        title if @shown.zero? && !@json
        show(text)
        enough if (@shown += 1) == @top
      end

      def title
        show("flow of process #{@pids.first}, thread #{@thread || "?"}")
        show(HEADING)
      end

      def finish(trace)
        @processes.each_value { |events| events.rest { |event| take(event) } } unless @closed
        choose if @waiting.any?
        return unless @shown.zero?

        others = trace.values("other")
        raise uncalled(others) if @function

        puts "  no call of the application#{" took so long" if @min_ns.positive?} (--all follows those of gems too)" unless @json
      end

      def uncalled(others)
        Host::Error.new("#{@function.inspect} was not called in that time#{nearest(others)}", "probescope calls -p #{@pids.first}")
      end

      # The names most like the one that was asked for, of those that were called.
      def nearest(names)
        return "; no function was" if names.empty?

        wanted = @function.downcase
        method = wanted[/[^#.]+\z/].to_s
        near = names.sort_by { |name| [distance(name.downcase, wanted) - (name.downcase.include?(method) ? wanted.size : 0), name] }
        "; the nearest of those that were: #{near.first(3).join(", ")}"
      end

      # Single letters to change, to add or to leave out (Levenshtein).
      def distance(one, other)
        row = (0..other.size).to_a
        one.each_char.with_index(1) do |a, i|
          diagonal, row[0] = row[0], i
          other.each_char.with_index(1) do |b, j|
            diagonal, row[j] = row[j], [row[j] + 1, row[j - 1] + 1, diagonal + (a == b ? 0 : 1)].min
          end
        end
        row.last
      end
    end
  end
end
