# frozen_string_literal: true

require_relative "syscalls"
require_relative "table"
require_relative "../tracing/event"

module Probescope
  module Commands
    # Events of the kernel or of a C function, by the traced function in which they happened.
    class On < Table
      PROGRAM = "on.bt"
      ALL = "functions of gems, packages and the standard library too"
      WIDENED = true
      BY_REQUEST = true
      USAGE = "on EVENT -p PID [options]"
      ABOUT = <<~TEXT
        In which function does an event happen? Counts an event of the kernel or of a C function by the
        innermost function of the application (--all: of all functions) that was open. With --sum, it adds
        up a value of each event, too. Sorted by EVENTS, with --sum by SUM. EVENT is one of:

          tracepoint:CATEGORY:NAME   a tracepoint of the kernel (/sys/kernel/tracing/events)
          software:NAME              page-faults, minor-faults, major-faults, context-switches (cs),
                                     cpu-migrations, alignment-faults, emulation-faults
          uprobe:FILE:SYMBOL         each call of a C function. FILE is a file whose code the process
                                     runs, by its name or its whole path

        The first two happen in all processes of the machine, and each of them pays for it. A uprobe stops
        the thread at each call. The command prints who pays before the interval begins. In addition, each
        call of a function costs about 0.1 us, as in `probescope calls`.

          SHARE      of the events of all rows
          SUM        with --sum: of a field of the tracepoint, or of arg0 to arg3 of the C function. A value
                     is a number of 64 bits with a sign; of an argument with fewer bits, the rest is not
                     defined
          FUNCTION   - where no traced function was open; (probescope): events of the library itself;
                     (unknown): memory of the process could not be read
          REQUEST    with --by-request: method and path, in which ids are *; - where there is no request, or
                     none that is known (as for `probescope syscalls`)
          CALLED BY  with --stack: the traced functions that had called it, the nearest first

        An event in an interrupt belongs to the function that was interrupted.
      TEXT
      EXAMPLES = <<~TEXT
        probescope on software:page-faults -p 4711                which functions touch new memory
        probescope on uprobe:libc.so.6:malloc --sum arg0 -p 4711  which functions allocate how many bytes of C
        probescope on tracepoint:sched:sched_switch --stack 4 -p 4711
                                                                  which calls give up the CPU
        probescope on tracepoint:syscalls:sys_enter_write --sum count -p 4711 --json
      TEXT
      MIN = "the events of all rows"
      # What an event costs (docs/performance.md).
      COSTS = "0.5 to 1.1 us for each event of the traced processes, and 0.1 to 0.3 us for each of all others"
      UPROBE_COSTS = "about 0.7 us for each call, and 1.1 us where it is counted"
      # valgrind reads a breakpoint as an instruction of the program.
      VALGRIND = "it ends programs under valgrind that make the call"
      KERNEL_PART = "not in the share for looking: the kernel's part of each event"

      # What the trace listens to, and who pays. mapping: Result#mapping.
      def self.reach(event, mapping)
        return "listens to #{event} of every process of the machine: #{COSTS}" unless event.uprobe?

        number, whole = mapping
        processes = "#{"at least " unless whole}#{number} processes that run"
        processes = "1 process that runs" if whole && number == 1
        calls = "stops each call of #{event.symbol} in #{processes} code of #{event.file}"
        "#{calls}: #{UPROBE_COSTS}; #{VALGRIND}"
      end

      class Report < Tracing::Report
        # event: Event. stack: whether the program tells calls apart by their callers.
        def initialize(result, definition, event:, stack:, by_request: false)
          super(result, definition, by_request: by_request)
          @event = event
          @stack = stack
        end

        def rows
          found = result.map("events").group_by { |key, _| names_of(key) }
                        .map { |(functions, request), entries| {**request, **row(functions, entries)} }
          all = sum(found, :events)
          sorted(found).map { |row| row.merge(share: ratio(row[:events], all)) }
        end

        def share(row) = row[:share]
        def nothing = "#{super} #{Measuring::ALL_HINT}"

        def more
          {event: @event.to_s, **(@event.sum ? {sum_of: @event.sum} : {}),
           reach: [On.reach(@event, result.mapping)]}
        end

        def not_covered
          untold = result.lost[:untold]
          [*super,
           *("not covered: #{Tracing::Figure.count(untold)} events of threads that made no traced call" if
             untold.positive?),
           KERNEL_PART]
        end

        private

        def live? = true

        # [the innermost function and its callers, request_of()]
        def names_of(key)
          pid, *sites = numbers(key)
          request = sites.pop if @by_request
          [functions(pid, sites), request_of(request)]
        end

        # Each as [function, file, line]. A function whose names could not be read is unknown.
        def functions(pid, sites)
          sites.pop while sites.size > 1 && sites.last.zero?
          sites.map do |site|
            function, file, line = names.fetch([pid, site], []).map { |name| known(name) }
            [function || (UNKNOWN if site.positive?), file, line]
          end
        end

        # {[pid, number of a function] => [function, file, line]}
        def names = @names ||= result.map("row").transform_keys { |key| numbers(key) }

        def numbers(key) = key.scan(/\d+/).map(&:to_i)

        def row(functions, entries)
          inner, *callers = functions.map do |function, file, line|
            {function: function, file: file, line: line}
          end
          keys = entries.map(&:first)
          events = entries.sum { |_, count| Tracing::Result.number(count) }
          figures = {events: events, per_second: per_second(events)}
          figures[:sum] = added_up(keys) if @event.sum
          figures[:callers] = callers if @stack
          inner.merge(figures)
        end

        # The program has no sum where all values were 0.
        def added_up(keys)
          result.map("sum").values_at(*keys).compact.sum { |value| Tracing::Result.number(value) }
        end

        def sorted(rows)
          rows.sort_by do |row|
            [-(row[:sum] || row[:events]), -row[:events],
             [row, *row[:callers]].map { |one| one.values_at(:file, :line, :function).join(":") },
             row.values_at(:method, :route).map(&:to_s)]
          end
        end
      end

      private

      # The event is the only argument that is no option.
      def parse(argv)
        text, *rest = super
        @event = Tracing::Event.parse(text, @sum) if text
        rest
      rescue Tracing::Error => e
        raise e.is_a?(CLI::Usage) ? e : CLI::Usage.new(e.message, e.next_step)
      end

      def call
        raise CLI::Usage.new("which event?", Tracing::Event::FORMS) unless @event

        super
      end

      def options(parser)
        super
        parser.on("--sum VALUE",
                  "add up this value of each event: a field of the tracepoint, or arg0 to arg3") do |name|
          @sum = name
        end
        parser.on("--stack N", Integer,
                  "rows for each stack of N calls, at most #{Tracing::Event::MOST_FRAMES}: " \
                  "a BPF program reads no more") do |frames|
          unless frames.between?(1, Tracing::Event::MOST_FRAMES)
            raise CLI::Usage.new("--stack takes 1 to #{Tracing::Event::MOST_FRAMES}", "--stack 4")
          end

          @frames = frames
        end
      end

      # Before the interval begins.
      def heard(answer)
        super
        return unless answer[:is] == "attached"

        warn("probescope: #{Tracing::Text.clean(On.reach(@event, answer[:mapping]))}")
      end

      def order = Tracing::Order.of(**super.to_h, event: @event&.fields)
      def program = @frames ? "on_stack.bt" : PROGRAM
      def program_arguments = [*super, *@frames&.to_s]

      def report_of(part) = Report.new(part, definition, event: @event, stack: !@frames.nil?,
                                                         by_request: @by_request)
    end
  end
end
