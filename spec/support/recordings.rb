# frozen_string_literal: true

require "json"
require "yaml"

module Support
  # What the command's helper reads from a real bpftrace, kept in
  # spec/fixtures/bpftrace/VERSION/PROGRAM.jsonl. Each recording has a line about itself, then the
  # helper's answers and bpftrace's lines in their order. `rake fixtures:record` makes the
  # recordings again, with spec/support/host_target.c.
  module Recordings
    FOLDER = File.join(ROOT, "spec/fixtures/bpftrace")

    # program: that of a command that prints a table, without ".bt". kind: the special property.
    # argv: arguments of the command, without processes. processes: options of each host_target.
    # stopped: how many of them are stopped meanwhile. order: changes to the command's order to its
    # helper.
    Recording = Struct.new(:program, :kind, :command, :argv, :processes, :stopped, :order,
                           keyword_init: true) do
      # Returns the recording's first line in the file.
      def head(pids) = {recording: kind, command: command, argv: argv, pids: pids}
    end

    SLOW = [1, 10, 100].to_h { |ms| ["slow#{ms}ms", ["slow", "--threshold", "#{ms}ms"]] }.freeze
    # host_target.c makes x86-64's system calls.
    FILES = {"syscalls_files_x86_64" => %w[syscalls --files]}.freeze
    LINES = {"syscalls_lines" => %w[syscalls --by line]}.freeze
    # In the function of each row, host_target.c writes four bytes.
    EVENT = ["tracepoint:syscalls:sys_enter_write", "--sum", "count"].freeze
    ON = {"on" => ["on", *EVENT], "on_stack" => ["on", *EVENT, "--stack", "2"]}.freeze
    # Of processes that do not report their waits.
    KERNEL = {"waits_kernel" => ["waits"], "gvl_kernel" => ["gvl"]}.freeze
    # What a command charges to the code of the application, and to all code.
    OWN = {"hot_own" => ["hot"], "lines_own" => ["lines"]}.freeze
    SELF = {"hot" => %w[hot --by self], "lines" => %w[lines --by self]}.freeze
    # The program of a command is NAME.bt, except that slow has one for each threshold.
    TABLES = YAML.safe_load_file(File.join(ROOT, "docs/schema/schemas.yml")).fetch("commands")
                 .select { |_, command| command["kind"] == "table" }
                 .keys.to_h { |name| [name, [name]] }.except("slow")
                 .merge(SLOW, FILES, LINES, ON, KERNEL, SELF, OWN).freeze
    # CPython, for which host_target.c counts no ticks.
    PYTHON = %w[--met 0 --waits --locks].freeze
    # {program => further options of host_target}
    OPTIONS = {"offcpu" => %w[--waits], "offcpu_by_request" => %w[--waits],
               "waits_kernel" => [*PYTHON, "--without", "wait__stats"],
               "waits_kernel_by_request" => [*PYTHON, "--without", "wait__stats"],
               "gvl_kernel" => [*PYTHON, "--without", "gvl__wait"], "syscalls_lines" => %w[--lines],
               "syscalls_lines_by_request" => %w[--lines]}.freeze
    BY_REQUEST = ["hot", "exceptions", "alloc", "syscalls", "syscalls_lines", "offcpu", "on", "on_stack",
                  "waits", "waits_kernel", *SLOW.keys].to_h do |name|
      ["#{name}_by_request", [*(SELF.key?(name) ? [name] : TABLES.fetch(name)), "--by-request"]]
    end.freeze
    LIVE = {"stat" => ["stat"], "light" => ["stat", "--light"], "flow" => ["flow"]}.freeze
    PROGRAMS = {**TABLES, **BY_REQUEST, **LIVE}.freeze

    # A process with three rows and one with two rows share names. The third one's names are
    # hostile.
    KINDS = {
      "one" => {processes: [%w[--rows 3]]},
      "hostile" => {processes: [%w[--hostile --rows 1]],
                    only: %w[hot_own exceptions calls requests slow10ms alloc_by_request syscalls
                             syscalls_files_x86_64 syscalls_lines offcpu on on_stack waits_kernel
                             waits_by_request waits_kernel_by_request flow]},
      "several" => {processes: [%w[--rows 3], %w[--rows 2], %w[--hostile --rows 1]]},
      "full" => {processes: [%w[--rows 30]], order: {keys: 10},
                 only: %w[hot hot_own exceptions calls requests alloc_by_request slow10ms on_stack]},
      "strings" => {processes: [%w[--rows 2 --strings]], only: %w[exceptions]},
      "stopped" => {processes: [%w[--rows 2], %w[--rows 2]], stopped: 1, only: %w[calls]},
      "lost" => {processes: [%w[--rows 400]], order: {pages: 1}, only: %w[flow]}
    }.freeze
    # Each row's calls are 4 ms longer than the previous row's.
    ROWS = {"slow100ms" => "27", "slow100ms_by_request" => "27"}.freeze

    module_function

    # {program => [Recording, ...]}
    def all = PROGRAMS.to_h { |program, command| [program, of(program, command)] }

    def of(program, (command, *argv))
      KINDS.select { |_, about| about.fetch(:only, [program]).include?(program) }.map do |kind, about|
        processes = about[:processes].map do |options|
          options.map { |word| word == "3" ? ROWS.fetch(program, word) : word } + OPTIONS.fetch(program, [])
        end
        Recording.new(program: program, kind: kind, command: command, argv: argv, processes: processes,
                      stopped: about.fetch(:stopped, 0), order: about.fetch(:order, {}))
      end
    end

    # Versions of bpftrace with recordings, such as "0.17".
    def versions = Dir.children(FOLDER).sort_by { |name| Gem::Version.new(name) }

    def path(version, program) = File.join(FOLDER, version, "#{program}.jsonl")

    # Returns [[head, [answer, ...]], ...] of a file, with the answers of Tracing::Client#trace.
    def read(version, program)
      path = path(version, program)
      raise "#{path} is missing: rake fixtures:record PROGRAM=#{program} ALL=1" unless File.exist?(path)

      lines = File.binread(path).lines(chomp: true)
      recordings = lines.slice_before { |line| line.start_with?('{"recording":') }
      recordings.map do |head, *told|
        [JSON.parse(head, symbolize_names: true), told.map { |line| answer(line) }]
      end
    end

    def answer(line)
      line.start_with?('{"is":') ? JSON.parse(line, symbolize_names: true) : {is: "output", line: line}
    end
  end
end
