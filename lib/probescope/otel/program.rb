# frozen_string_literal: true

require_relative "../tracing/program"
require_relative "lines"

module Probescope
  module Otel
    # The bpftrace program of a bridge, generated from the definitions of the probes. It contains no
    # data of a traced process.
    class Program
      # slow: ns. exceptions, metrics, messages: whether they are sent. number: bpftrace's builtin
      # for the number of a process.
      def initialize(slow:, exceptions:, metrics:, messages:, number: "pid")
        @slow = [slow, Tracing::Program::LONGEST].min
        @exceptions = exceptions
        @metrics = metrics
        @messages = messages
        @number = number
      end

      # Names of the probes that a process must have. request__done is left out, because an older
      # library does not fire it.
      def probes = kinds.map { |_, _, probe| probe.to_s }.uniq - [Lines::REQUEST.probe.to_s]

      def text = "#{HEAD}#{blocks(*last)}#{(kinds - [last]).map { |each| blocks(*each) }.join}#{TAIL}"

      private

      HEAD = <<~TEXT
        /*
         * What `probescope otel` listens to:
         *   bpftrace -p PID THIS          or, for every process that maps one of the libraries,
         *   bpftrace THIS 'FOLDER/*.so'
         *
         * stats__done is first in the text, so that bpftrace attaches it last: then all of the others are attached when a second begins.
         */

      TEXT
      TAIL = <<~TEXT.freeze
        interval:s:#{Lines::RENAME}
        {
          clear(@named);
        }

        END
        {
          clear(@named);
        }
      TEXT
      # Single events, which are counted.
      SINGLE = [Lines::SLOW, Lines::DETAIL, Lines::REQUEST].freeze

      def kinds
        slow = ["S", Lines::SLOW, :"function__#{Tracing::Program.threshold(@slow)}"]
        found = [*Lines::PARTS.each_value.map { |kind| Lines::MARKS.key(kind) }, "W", "R", slow]
        found << "X" << ("M" if @messages) if @exceptions
        found << "E" if @exceptions || @metrics
        found << "F" << "A" << "G" if @metrics
        [*found, last].compact.map do |mark|
          mark.is_a?(String) ? [mark, Lines::MARKS.fetch(mark), Lines::MARKS.fetch(mark).probe] : mark
        end
      end

      # The block that comes first in the text, which bpftrace attaches last.
      def last = ["D", Lines::SECOND, Lines::SECOND.probe]

      def blocks(mark, kind, probe)
        filter = filter(kind, probe)
        head = "usdt:$1:probescope:#{probe}\n#{"/#{filter}/\n" if filter}"
        [*kind.names.map { |name| head + naming(expression(probe, name)) },
         head + event(mark, kind, probe)].join
      end

      def filter(kind, probe)
        return "(uint64)arg3 >= #{@slow}" if kind == Lines::SLOW
        return unless probe == Lines::REQUEST.probe

        part = Lines::PARTS.key(kind)
        # "1 ==" comes first, because a filter that begins with "*" makes "/*", which begins a
        # comment.
        "1 == #{expression(probe, :own)}#{" && *(uint8*)#{expression(probe, part)} != 0" if part}"
      end

      def naming(address)
        <<~TEXT
          {
            $name = (uint64)#{address};
            if (@named[#{@number}, $name] == 0) {
              printf("N %llu %llu\\t%s\\n", (uint64)#{@number}, $name, str($name, #{Lines::NAME_BYTES}));
              @named[#{@number}, $name] = 1;
            }
          }

        TEXT
      end

      def event(mark, kind, probe)
        figures = [*kind.names, *kind.figures].map { |field| "(uint64)#{expression(probe, field)}" }
        figures += kind.words.flat_map { |field| word(expression(probe, field)) }
        text = [kind.text].compact.map { |field| "str(#{expression(probe, field)}, #{bytes(field)})" }
        <<~TEXT
          {
          #{told(kind)}  printf("#{mark} %llu %llu#{" %llu" * figures.size}#{"\\t%s" * text.size}\\n",
            #{["(uint64)#{@number}", "nsecs", *figures, *text].join(",\n  ")});
          }

        TEXT
      end

      # Counts the lines for single events, some of which the kernel may lose. bpftrace 0.17 must
      # see an assignment of a map before it sees a use.
      def told(kind)
        if [*SINGLE, Lines::SECOND].include?(kind)
          "  @told[#{@number}] += #{SINGLE.include?(kind) ? 1 : 0};\n"
        end
      end

      def word(address) = ["*(uint64*)#{address}", "*(uint64*)(#{address} + 8)"]

      def bytes(field) = field == :traceparent ? Lines::TRACEPARENT_BYTES : Lines::NAME_BYTES

      # The bpftrace expression for a field of a probe.
      def expression(probe, field)
        return "@told[#{@number}]" if field == :told

        definition = ABI::PROBES.fetch(probe)
        argument = definition[:args].index(field)
        argument ? "arg#{argument}" : "*(uint64*)(arg5 + #{definition[:more].fetch(field)})"
      end
    end
  end
end
