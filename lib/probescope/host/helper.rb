# frozen_string_literal: true

# The part of the command that runs with privilege, as a program of its own: it finds processes, reads their
# probescope_info, and runs bpftrace. It reads orders from stdin, a JSON object a line, and answers on stdout. Nothing
# but Ruby's standard library is loaded. When stdin ends, because the command has ended in whichever way, it kills
# bpftrace and leaves.
require "json"
require_relative "error"
require_relative "target"
require_relative "tracing"

module Probescope
  module Host
    # Orders: {"do": "list"}, {"do": "inspect", "pid"}, {"do": "trace", "pids", ...} (see Tracing), {"do": "stop"}.
    # Answers: {"is": "targets" | "target" | "attached" | "joined" | "counting" | "leaving" | "ended" | "error", ...}, and for
    # each line that bpftrace prints that line itself behind a "=".
    class Helper
      def initialize(input, output)
        @input = input
        @output = output
        @orders = "".b
      end

      def run
        # The command sees to Ctrl-C and to a closed terminal; here they would end the trace without its maps. bpftrace
        # inherits what is ignored, and has to obey an INT.
        trap("INT") { nil }
        trap("HUP", "IGNORE")
        trap("TERM") { @terminated = true }
        answer("ready", {})
        loop { turn }
      rescue IOError, Errno::EPIPE # which an end of file is too
        @tracing&.kill
      end

      private

      def turn
        if @terminated
          @terminated = false
          @tracing ? @tracing.stop : raise(EOFError)
        end
        ready, = IO.select([@input, *@tracing&.streams], nil, nil, @tracing ? Tracing::POLL : nil)
        ready&.each { |io| io == @input ? read_orders : @tracing.read(io) }
        @tracing = nil if @tracing&.step
      rescue Error => e
        answer("error", message: e.message, next_step: e.next_step)
      end

      def read_orders
        @orders << @input.readpartial(1 << 16)
        while (line = @orders.slice!(/\A[^\n]*\n/n))
          obey(JSON.parse(line))
        end
      end

      def obey(order)
        case order.fetch("do")
        when "list" then list
        when "inspect" then answer("target", target: Target.find(order.fetch("pid")).to_status)
        when "trace" then trace(order)
        when "stop" then @tracing&.stop
        end
      end

      def list
        targets, unreadable = Target.all
        found = targets.filter_map do |target|
          target.to_h
        rescue SystemCallError, EOFError, Error
          nil
        end
        answer("targets", targets: found, unreadable: unreadable)
      end

      def trace(order)
        @tracing = Tracing.new(order) { |kind, value| kind == :output ? write("=", value) : answer(kind, value) }
      end

      def answer(kind, fields) = write("", JSON.generate({is: kind}.merge(fields)))

      def write(mark, text)
        @output.write(mark, text, "\n")
        @output.flush
      end
    end
  end
end

Probescope::Host::Helper.new($stdin.binmode, $stdout.binmode).run if $PROGRAM_NAME == __FILE__
