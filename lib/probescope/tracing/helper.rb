# frozen_string_literal: true

# The privileged part of the command, a program of its own. It finds processes, reads their
# probescope_info, and runs bpftrace. It reads requests from stdin, one JSON object a line, and
# answers on stdout. It loads nothing but Ruby's standard library. When stdin ends, because the
# command has ended for whatever reason, the helper kills bpftrace and exits.
#
# The process that writes to the helper need not have any privilege: a rule of sudo may allow this
# program and nothing else. So no part of a request becomes a path or a command (Request), and the
# helper finds other programs by itself (Tool).
require "json"
require_relative "capabilities"
require_relative "crash"
require_relative "error"
require_relative "measurement"
require_relative "probed_process"
require_relative "request"
require_relative "survey"
require_relative "tool"
require_relative "trial"

module Probescope
  module Tracing
    # Requests: see Request. Answers: {"is": "ready" | "targets" | "target" | "tried" | "attached" |
    # "joined" | "counting" | "leaving" | "ended" | "error" | "crash", ...}. Each line that bpftrace
    # prints is passed on with a "=" before it.
    class Helper
      def self.start = new($stdin.binmode, $stdout.binmode).run

      def initialize(input, output)
        @input = input
        @output = output
        @orders = "".b
      end

      def run
        confine
        # The command handles Ctrl-C and a closed terminal; in the helper they would end the trace
        # without its maps. INT has a handler instead of being ignored: bpftrace would inherit an
        # ignored INT, and the helper ends it by INT.
        trap("INT") { nil }
        trap("HUP", "IGNORE")
        # Ctrl-Z stops the command only. A stopped helper would not notice that the command was
        # killed.
        trap("TSTP", "IGNORE")
        trap("TERM") { @terminated = true }
        answer("ready", {})
        loop { turn }
      rescue IOError, Errno::EPIPE # includes EOFError
        nil
      rescue StandardError => e
        answer("crash", what: Crash.of(e))
      ensure
        @measurement&.kill
        # The command does not wait for this. Where the kernel still holds bpftrace, the helper
        # stays until bpftrace has ended.
        BpftraceProcess.await_left { [@input, @output, $stderr].each(&:close) }
      end

      private

      # Drops every privilege and setting that tracing does not need.
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
          @measurement ? @measurement.stop : raise(EOFError)
        end
        ready, = IO.select([@input, *@measurement&.streams], nil, nil, @measurement ? Measurement::POLL : nil)
        ready&.each { |io| io == @input ? read_orders : @measurement.read(io) }
        @measurement = nil if @measurement&.step
      rescue Error => e
        answer("error", message: e.message, next_step: e.next_step, misused: e.is_a?(Misused))
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
        when "inspect" then answer("target", target: ProbedProcess.find(order.fetch("pid")).status)
        when "try" then answer("tried", complaint: Trial.run)
        when "trace" then trace(order)
        when "stop" then @measurement&.stop
        end
      end

      def list
        survey = Survey.new(Survey.pids, :row)
        answer("targets", targets: survey.found.sort.map(&:last), unreadable: survey.unreadable,
                          set_aside: survey.set_aside.sort.map(&:last))
      end

      def trace(order)
        raise Request::Refused, "the helper traces already" if @measurement

        @measurement = Measurement.new(order) do |kind, value|
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

Probescope::Tracing::Helper.start if $PROGRAM_NAME == __FILE__
