# frozen_string_literal: true

# The part of the command that runs with privilege, as a program of its own: it finds processes,
# reads their probescope_info, and runs bpftrace. It reads orders from stdin, a JSON object a line,
# and answers on stdout. Nothing but Ruby's standard library is loaded. When stdin ends, because the
# command has ended in whichever way, it kills bpftrace and leaves.
#
# Who writes to it need not have any privilege: a rule of sudo may allow this program and nothing
# else. So nothing that it is told becomes a path or a command (Request), and it finds other
# programs by itself (Tool).
require "json"
require_relative "capabilities"
require_relative "crash"
require_relative "error"
require_relative "request"
require_relative "survey"
require_relative "target"
require_relative "tool"
require_relative "tracing"
require_relative "trial"

module Probescope
  module Host
    # Orders: see Request.
    # Answers: {"is": "ready" | "targets" | "target" | "tried" | "attached" | "joined" | "counting" |
    # "leaving" | "ended" | "error" | "crash", ...}, and for each line that bpftrace prints that line
    # itself behind a "=".
    class Helper
      def self.start = new($stdin.binmode, $stdout.binmode).run

      def initialize(input, output)
        @input = input
        @output = output
        @orders = "".b
      end

      def run
        confine
        # The command sees to Ctrl-C and to a closed terminal; here they would end the trace without
        # its maps. bpftrace inherits what is ignored, and has to obey an INT.
        trap("INT") { nil }
        trap("HUP", "IGNORE")
        # Ctrl-Z stops the command. A helper that was stopped with it would not see that it is
        # killed then.
        trap("TSTP", "IGNORE")
        trap("TERM") { @terminated = true }
        answer("ready", {})
        loop { turn }
      rescue IOError, Errno::EPIPE # which an end of file is too
        nil
      rescue StandardError => e
        answer("crash", what: Crash.of(e))
      ensure
        @tracing&.kill
        # The command does not wait for that. A bpftrace that the kernel still holds has us see to
        # its end.
        Tracer.await_left { [@input, @output, $stderr].each(&:close) }
      end

      private

      # Gives up what tracing does not need.
      def confine
        ENV.replace(Tool::ENVIRONMENT)
        File.umask(0o077)
        Dir.chdir("/")
        Process.setrlimit(:CORE, 0)
        Capabilities.limit(Capabilities::TRACING) if Process.euid.zero?
      end

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
        @orders << @input.readpartial(Request::MOST_BYTES)
        while (line = @orders.slice!(/\A[^\n]*\n/n))
          obey(*Request.read(line))
        end
        return if @orders.bytesize < Request::MOST_BYTES

        @orders.clear
        raise Request::Refused, "the helper takes no order of more than #{Request::MOST_BYTES} bytes"
      end

      def obey(what, order)
        case what
        when "list" then list
        when "inspect" then answer("target", target: Target.find(order.fetch("pid")).status)
        when "try" then answer("tried", complaint: Trial.run)
        when "trace" then trace(order)
        when "stop" then @tracing&.stop
        end
      end

      def list
        survey = Survey.new(Survey.pids, :row)
        answer("targets", targets: survey.found.sort.map(&:last), unreadable: survey.unreadable,
                          set_aside: survey.set_aside.sort.map(&:last))
      end

      def trace(order)
        raise Request::Refused, "the helper traces already" if @tracing

        @tracing = Tracing.new(order) do |kind, value|
          kind == :output ? write("=", value) : answer(kind, value)
        end
      end

      def answer(kind, fields) = write("", JSON.generate({is: kind}.merge(fields)))

      def write(mark, text)
        @output.write(mark, text, "\n")
        @output.flush
      end
    end
  end
end

Probescope::Host::Helper.start if $PROGRAM_NAME == __FILE__
