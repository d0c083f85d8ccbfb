# frozen_string_literal: true

require "did_you_mean"
require_relative "tracing/error"
require_relative "tracing/text"
require_relative "version"

module Probescope
  # The command `probescope`. Exit status: 0 success; 1 failure (one line on stderr gives the
  # reason, the next line what to do); 2 the command line was wrong; 130 interrupted before there
  # was anything to show.
  module CLI
    # Each command is a file, lib/probescope/commands/NAME.rb, which is loaded when the command is
    # run.
    COMMANDS = {
      "ps" => "list the processes that can be traced",
      "status" => "list the probes of a process, also the application's own",
      "doctor" => "check what tracing needs, and show what is missing",
      "run" => "start a command with probescope loaded into its Ruby or Python",
      "hot" => "which functions are on the CPU",
      "exceptions" => "which exceptions are costly, and which line raises them",
      "backtraces" => "who turns backtraces into strings, and what it costs",
      "calls" => "how often functions are called, and how long they take",
      "requests" => "which requests are answered, how fast, and which fail",
      "slow" => "which calls took long, for which request, and where inside",
      "alloc" => "which lines allocate objects, and of which class",
      "lines" => "which lines are on the CPU",
      "flow" => "which function calls which, as it happens",
      "stat" => "what happens in the process, a line each second",
      "gc" => "how long the garbage collector stops the program",
      "gvl" => "which threads wait for the VM lock",
      "syscalls" => "which function makes which system calls",
      "offcpu" => "where threads are off the CPU, why, and who wakes them",
      "on" => "in which function an event of the kernel or of C happens",
      "waits" => "what threads wait for, at which line, and whose line ends it",
      "record" => "record call paths over time, into a file",
      "convert" => "show a recording, or write it in another format",
      "diff" => "which functions cost more or less than in another recording",
      "otel" => "send slow calls and costly exceptions to an OpenTelemetry backend",
      "script" => "print the bpftrace program behind a command",
      "completion" => "print what a shell needs to complete command lines"
    }.freeze

    # The command line was wrong.
    class Usage < Tracing::Misused; end

    module_function

    # argv: the arguments without the program's name. Returns the exit status.
    def start(argv)
      dispatch(*argv)
    rescue Tracing::Error => e
      complain(e)
    rescue Interrupt
      130
    rescue Errno::EPIPE # the reader of the pipe has closed it
      $stdout.reopen(File::NULL)
      1
    rescue LoadError => e
      complain(Tracing::Error.new("the installation is not complete: #{e.message}", complete))
    rescue StandardError, NotImplementedError => e
      require_relative "tracing/crash"
      complain(Tracing::Crash.new(Tracing::Crash.of(e)))
    end

    # The command that completes this installation. Only a checkout has a bin/setup.
    def complete
      setup = File.expand_path("../../bin/setup", __dir__)
      File.exist?(setup) ? "#{setup} run" : "install probescope anew"
    end

    def dispatch(name = nil, *arguments)
      case name
      when nil, "help", "-h", "--help" then help(arguments.first)
      when "-v", "--version" then puts("probescope #{VERSION}") || 0
      else command(name).new.run(arguments)
      end
    end

    def command(name)
      unless COMMANDS.key?(name)
        shown = Tracing::Text.clean(name).inspect
        raise Usage.new("there is no command #{shown}#{meant(name, COMMANDS.keys)}", "probescope --help")
      end

      require_relative "commands/#{name}"
      Commands.const_get(name.capitalize)
    end

    # Returns "; did you mean hot?", or nil. wanted: a text that is not among the names.
    def meant(wanted, names)
      found = DidYouMean::SpellChecker.new(dictionary: names).correct(wanted)
      "; did you mean #{found.first(3).join(" or ")}?" if found.any?
    end

    def help(name = nil)
      return command(name).new.run(["--help"]) if name

      puts <<~TEXT
        Usage: probescope COMMAND [options]

        #{COMMANDS.map { |command, about| format("  %-12s%s", command, about) }.join("\n")}

        Examples:
          probescope run -- bundle exec puma     start an application with the probes in it
          probescope ps                          find its process
          probescope exceptions -p 4711          ask it, for 10 seconds, while it runs

        `probescope COMMAND --help` explains each of them.
      TEXT
      0
    end

    def complain(error)
      warn "probescope: #{Tracing::Text.clean(error.message)}"
      warn "  try: #{Tracing::Text.clean(error.next_step)}" if error.next_step
      error.is_a?(Tracing::Misused) ? 2 : 1
    end
  end
end
