# frozen_string_literal: true

require "json"
require "rbconfig"
require_relative "crash"
require_relative "error"

module Probescope
  module Tracing
    # The command's side of the helper (helper.rb): starts it with privilege, sends requests
    # (Request) and returns its answers.
    class Client
      # Only in the system's package: the helper is one file, which a rule of sudo can name
      # (packaging/helper).
      LAUNCHER = File.expand_path("../../../helper", __dir__)
      # Elsewhere Ruby runs the helper. No rule of sudo can name it, because a user who may run Ruby
      # through sudo may run any program.
      HELPER = [RbConfig.ruby, "--disable=gems,rubyopt", File.expand_path("helper.rb", __dir__)].freeze
      # Variables of Bundler, rbenv and similar tools are meant for the user's own Ruby. The helper
      # needs only the standard library.
      FOREIGN = /\A(RUBY|BUNDLE|GEM_|RBENV_)/

      # Seconds to wait for the helper's end, longer than BpftraceProcess#discard takes. A helper
      # that still runs after that waits for the kernel.
      END_LIMIT = 25

      # Whether this copy was installed by the system's package.
      def self.packaged? = File.exist?(LAUNCHER)

      # prefix: Privilege#prefix. Yields a Client, and ends the helper afterwards. Raises Error when
      # the helper cannot be started.
      def self.open(prefix)
        client = new(prefix)
        yield client
      ensure
        client&.close
      end

      def initialize(prefix)
        env = ENV.to_h.transform_values { nil }.select { |name, _| name.match?(FOREIGN) }
        child_in, @input = IO.pipe
        @output, child_out = IO.pipe(Encoding::BINARY)
        @errors, child_err = IO.pipe(Encoding::BINARY)
        helper = Client.packaged? ? [LAUNCHER] : HELPER
        @pid = Process.spawn(env, *prefix, *helper, in: child_in, out: child_out, err: child_err)
        [child_in, child_out, child_err].each(&:close)
        @stderr = Thread.new { @errors.read }
        expect("ready")
        @ready = true
      end

      # Returns [rows, number of processes that could not be read, reasons why others were set
      # aside]. A row is a Foreign.row, read from JSON.
      def list
        ask("list")
        expect("targets").values_at(:targets, :unreadable, :set_aside)
      end

      # Returns Foreign.status, read from JSON. Raises Error when there is nothing to trace in that
      # process.
      def inspect_process(pid)
        ask("inspect", pid: pid)
        expect("target").fetch(:target)
      end

      # Runs a small program in bpftrace. Returns bpftrace's complaint, or nil.
      def try
        ask("try")
        expect("tried")[:complaint]
      end

      # order: Order. Yields each answer up to and including "ended". A line of bpftrace's output is
      # yielded as {is: "output", line: bytes}.
      def trace(order)
        ask("trace", **order.fields)
        loop do
          answer = next_answer
          yield answer
          break if answer[:is] == "ended"
        end
      end

      # Safe to call in a signal handler.
      def stop
        @input.syswrite("{\"do\":\"stop\"}\n")
      rescue SystemCallError, IOError
        nil
      end

      def close
        [@input, @output].each(&:close)
        return if Process.detach(@pid).join(END_LIMIT)

        warn "probescope: the kernel has not let go of bpftrace yet. " \
             "The helper (process #{@pid}) ends it when it does"
      end

      private

      def ask(what, **fields)
        @input.write(JSON.generate(fields.merge(do: what)), "\n")
      rescue Errno::EPIPE
        raise gone
      end

      def expect(kind)
        answer = next_answer
        answer[:is] == kind ? answer : raise(Error.new("the helper answered #{answer[:is]} to #{kind}", nil))
      end

      def next_answer
        line = @output.gets("\n") or raise gone
        return {is: "output", line: line[1..].chomp} if line.start_with?("=")

        answer = JSON.parse(line, symbolize_names: true)
        if answer[:is] == "error"
          raise (answer[:misused] ? Misused : Error).new(answer[:message], answer[:next_step])
        end
        raise Crash.new(answer[:what], "the helper") if answer[:is] == "crash"

        answer
      end

      # The reason is the last line on stderr that is not part of a backtrace: sudo's message, or
      # the error of a Ruby that cannot load the helper.
      def gone
        lines = @stderr.value.force_encoding(Encoding::UTF_8).scrub.lines.map(&:strip)
        why = lines.reject { |line| line.empty? || line.start_with?("from ") }.last
        why = ": #{why}" if why
        if @ready
          return Error.new("the helper that runs bpftrace ended#{why || killed}", "run the command again")
        end

        rule = ", or with the rule in /usr/share/doc/probescope/examples/sudoers" if Client.packaged?
        Error.new("cannot get the privilege to trace#{why}",
                  "run the command as root, or as a user who may use sudo#{rule}")
      end

      # The signal that killed the helper.
      def killed
        status = Process.wait2(@pid).last
        " (#{Signal.signame(status.termsig)})" if status.signaled?
      rescue Errno::ECHILD
        nil
      end
    end
  end
end
