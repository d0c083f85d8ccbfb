# frozen_string_literal: true

require_relative "base"
require_relative "../tracing/bpftrace"
require_relative "../tracing/client"
require_relative "../tracing/complaint"
require_relative "../tracing/kernel"
require_relative "../tracing/privilege"
require_relative "../tracing/tool"

module Probescope
  module Commands
    # Prints one line for each thing that tracing depends on: that it is good, or what to do.
    class Doctor < Base
      USAGE = "doctor [options]"
      ABOUT = <<~TEXT
        Checks what tracing needs on this machine, and with -p in that process. Prints what to do where
        something is missing. Exit status 0 when everything that is needed is there, 1 otherwise.
      TEXT
      EXAMPLES = <<~TEXT
        probescope doctor
        probescope doctor -p 4711
      TEXT
      CHECKOUT = File.expand_path("../../..", __dir__)
      MARKS = {good: "ok", note: "--", bad: "NO"}.freeze
      # Part of a reason in ext/python/monitoring.c.
      TOOL_IDS_TAKEN = "tool ids are taken"

      private

      def options(parser)
        pid_option(parser)
        parser.on("--json", "one JSON object instead of the lines") { @json = true }
      end

      def call
        @checks = []
        machine
        library
        process if @pid
        @json ? print_json : print_lines
        @checks.none? { |check| check[:state] == :bad } ? 0 : 1
      end

      def machine
        kernel = Tracing::Kernel.new
        %i[version uprobes tracefs btf].each { |what| check { kernel.public_send(what) } }
        check do
          @bpftrace = Tracing::Bpftrace.find
          "bpftrace #{@bpftrace} (#{@bpftrace.path})"
        end
        check(:note) do
          Tracing::Tool.find("setpriv") or
            raise Tracing::Error.new("no setpriv: a helper that is killed with -9 leaves bpftrace behind",
                                     "install util-linux")
          "setpriv: bpftrace ends with the command, also when that is killed"
        end
        check do
          prefix = Tracing::Privilege.new.prefix(@bpftrace)
          complaint = Tracing::Client.open(@prefix = prefix, &:try)
          if complaint
            raise Tracing::Complaint.error(complaint, "does not run a program", "probescope doctor, as root")
          end

          "the privilege to trace#{", through sudo" if prefix.any?}: bpftrace has run a program"
        end
      end

      # The native library for the Ruby that runs this command. A traced process loads its own. The
      # system package contains none.
      def library
        check(@pid || Tracing::Client.packaged? ? :note : :bad) do
          require "probescope"
          reason = Probescope.unavailable_reason
          if reason
            raise Tracing::Error.new("this Ruby (#{RUBY_VERSION}) cannot be traced: #{reason}", reinstall)
          end

          "the native library for this Ruby (#{RUBY_VERSION})"
        end
        check(:note) { run_time_probes } if Probescope.unavailable_reason.nil?
      end

      def run_time_probes
        library = Native::PROVIDERS == "own" ? "its own library" : Native::PROVIDERS
        text = "run-time probes (Probescope::Provider) by #{library}"
        return text if Native::MOST_ARGUMENTS > 6

        raise Tracing::Error.new("#{text}: no semaphores, six arguments at most",
                                 "a gem that is installed without --with-stapsdt-dir has its own")
      end

      def reinstall
        if Tracing::Client.packaged?
          return "the gem goes into the application: docs/how-to/load-it-into-an-application.md"
        end

        # gem pristine does not find gems that Bundler loads by path, and does not compile them.
        return "bin/setup run, in #{CHECKOUT}" if File.exist?("#{CHECKOUT}/bin/setup")

        tools = "install a C compiler and Ruby's headers (apt install build-essential ruby-dev), then: gem"
        compiled = !File.exist?(File.expand_path("../../../ext/ruby/extconf.rb", __dir__))
        compiled ? "#{tools} install probescope --platform ruby" : "#{tools} pristine probescope"
      end

      def process
        check do
          @process = Tracing::Client.open(@prefix || []) { |client| client.inspect_process(@pid) }
          "process #{@pid}: #{@process[:runtime]} #{@process[:version]}, probescope #{@process[:library]}, " \
            "ABI #{@process[:abi]}"
        end
        return unless @process

        check { watcher }
        check(:note) { on_disk }
        check(:note) { memory }
        @process[:probes].each { |name, probe| check(:note) { served(name, probe) } }
        check(:note) { trace_hook } if @process[:runtime] == "python"
        note = @process[:note]
        check(:note) { raise Tracing::Error.new(note, nil) } unless note.empty?
      end

      def watcher
        return "its watcher looks for tracers" if @process[:flags].include?("watcher")

        raise Tracing::Error.new("nobody looks for tracers in process #{@pid}: its watcher does not run",
                                 install)
      end

      def install
        if @process[:runtime] == "python"
          return "call probescope.install() there, or restart it with PROBESCOPE=1"
        end

        "call Probescope.install there, or restart it with probescope/auto"
      end

      def on_disk
        return "its library is on disk (#{@process[:path]})" unless @process[:deleted]

        raise Tracing::Error.new("its library was replaced or deleted on disk (#{@process[:path]}): " \
                              "bpftrace -p cannot attach to it, the commands can", nil)
      end

      def memory
        used, limit, dropped = @process.values_at(:memory_used, :memory_limit, :rows_dropped)
        text = "#{used >> 10} of #{limit >> 10} KiB for names and rows used"
        return text if dropped.zero?

        raise Tracing::Error.new("#{text}; #{dropped} events had no row of their own",
                                 "give it more: PROBESCOPE_MEMORY=64M")
      end

      # A probe that is off or on gets no line, unless it had a reason when a tracer last attached.
      def served(name, probe)
        state, reason = probe.values_at(:state, :reason)
        return if %w[off on].include?(state) && reason.empty?

        state = "off, and was refused or degraded when it was last listened to" if state == "off"
        step = "end one of these tools there, and attach anew" if reason.include?(TOOL_IDS_TAKEN)
        raise Tracing::Error.new("#{name} is #{state}#{": #{reason}" unless reason.empty?}", step)
      end

      def trace_hook
        return if @process[:version].split(".")[1].to_i >= 12

        raise Tracing::Error.new("line, exception__raise, exception__rescue: before Python 3.12 only with " \
                              "PROBESCOPE_FORCE=1 in its environment: they need the trace hook, with which " \
                              "a call takes 6.4 times as long while somebody listens",
                                 nil)
      end

      # Runs one check. severity: the state of a failed check, :bad or :note.
      def check(severity = :bad)
        text = yield
        @checks << {state: :good, text: text, next_step: nil} if text
      rescue Tracing::Error => e
        @checks << {state: severity, text: e.message, next_step: e.next_step}
      end

      def print_lines
        @checks.each do |check|
          line = "#{MARKS.fetch(check[:state])}  #{check[:text]}"
          line += " -> #{check[:next_step]}" if check[:next_step]
          puts Tracing::Text.clean(line)
        end
      end

      def print_json
        puts Tracing::Text.answer(name, {pids: [@pid].compact, rows: @checks, warnings: []})
      end
    end
  end
end
