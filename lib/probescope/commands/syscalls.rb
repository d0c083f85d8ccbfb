# frozen_string_literal: true

require "etc"
require_relative "table"
require_relative "../tracing/kernel_lines"
require_relative "../tracing/syscalls"

module Probescope
  module Commands
    # System calls, by the function that made them.
    class Syscalls < Table
      PROGRAM = "syscalls.bt"
      ALL = "functions of gems, packages and the standard library too"
      WIDENED = true
      BY_REQUEST = true
      USAGE = "syscalls -p PID [options]"
      ABOUT = <<~TEXT
        Which function makes which system calls, how many fail, and how long do they take? Counts the system
        calls that end in the interval, of threads that have made a call of a traced function. A system call
        belongs to the innermost function of the application (--all: of all functions) that was open. Sorted
        by TOTAL.

        The trace listens to every system call of the machine: it costs each call of these processes 1 to
        2 us, and each call of all other processes 0.1 to 0.3 us. In addition, each call of a function
        costs about 0.1 us, as in `probescope calls`.

          TOTAL     only the part in the interval
          MEAN      TOTAL / CALLS
          LONGEST   with its part before the interval
          FAILED    calls that returned an error. ERESTART...: a signal interrupted the call; the kernel
                    repeats it or returns EINTR
          BYTES     read or written, of calls that return that number
          FUNCTION  - where no traced function was open; (probescope): calls of the library itself, such as
                    at a fork; (unknown): memory of the process could not be read
          REQUEST   with --by-request: method and path. An id in the path is *: the route may be known at
                    the end of a request only. - where there is no request, or none that is known, as in
                    Python code of a context in which no traced function has run yet
          AT        with --by line: the line at which the function was, or (definition) where only the line
                    is known at which it is defined: Ruby's lines are not known to the kernel
          PATH      with --files: up to 127 bytes. Of two paths the first one, and of a link its own
      TEXT
      EXAMPLES = <<~TEXT
        probescope syscalls -p 4711                  for 10 seconds
        probescope syscalls -p 4711 --failed         calls that return errors, such as ENOENT
        probescope syscalls -p 4711 --slower 1ms     calls that take 1 ms and more
        probescope syscalls -p 4711 --files --failed which paths do not exist
        probescope syscalls -p 4711 --by line        which lines of a Python process make the calls
        probescope syscalls -p 4711 --json | jq '.rows | map(.calls) | add'
      TEXT
      MIN = "the time of all rows"
      REACH = "listens to every system call of the machine: 1 to 2 us for each call of the traced " \
              "processes, and 0.1 to 0.3 us for each call of all others"

      class Report < Tracing::Report
        # failed: whether only rows with errors are shown. slower: the shortest call in ns that the
        # program counts.
        def initialize(result, definition, failed: false, slower: 0, by_request: false)
          super(result, definition, by_request: by_request)
          @failed = failed
          @slower = slower
        end

        def rows
          all = counted
          whole = sum(all, :total_ns)
          shown = @failed ? all.select { |row| row[:failed].positive? } : all
          sorted(shown).map { |row| row.merge(share: ratio(row[:total_ns], whole)) }
        end

        def share(row) = row[:share]

        def nothing
          return "no system call failed" if @failed
          return "no system call took #{Tracing::Figure.time(@slower)}" if @slower.positive?

          "#{super} #{Measuring::ALL_HINT}"
        end

        def more = {reach: [REACH], half_told: half_told}

        def not_covered
          untold = result.lost[:untold]
          [*super,
           *("not covered: calls shorter than #{Tracing::Figure.time(@slower)}" if @slower.positive?),
           *("not covered: #{Tracing::Figure.count(untold)} calls of threads that made no traced call" if
             untold.positive?),
           *(one_end if half_told.positive?),
           "not in the share for looking: the kernel's part, 1 to 2 us for each system call"]
        end

        # How many calls returned an error for which bpftrace's maps had no room.
        def errors_missing = found.sum { |row| (row.number("failed") || 0) - errors(row).values.sum }

        private

        def live? = true

        def sorted(rows)
          rows.sort_by do |row|
            [-row[:total_ns], -row[:calls],
             *row.values_at(:file, :line, :call, :path, :method, :route).map(&:to_s)]
          end
        end

        # The rows without their shares.
        def counted = found.map { |row| calls(row) }

        def found = result.rows_by_names("calls") { |key, names| names_of(Tracing::Result.numbers(key), names) }

        # key: the pid, the number of the function (0: none), the number of the call, and more; with
        # --by-request, the last one is the number of the request.
        def names_of(key, names)
          _, function, call = key
          return names if names && (names.first != "" || function.zero?)

          [UNKNOWN, "", 0, call, *(key.last if @by_request)]
        end

        def one_end
          "not covered: #{Tracing::Figure.count(half_told)} calls of which the kernel told only the begin " \
            "or only the end (refused by seccomp, or begun before the trace)"
        end

        # The map counts by the time of the stats__done before. What comes after the last one is
        # not in the interval: then bpftrace detaches, and misses begins or ends.
        def half_told
          @half_told ||= result.map("half_told").sum do |key, number|
            pid, after = key.split(",").map(&:strip)
            after.to_i == Tracing::Result.number(result.map("ended")[pid]) ? 0 : Tracing::Result.number(number)
          end
        end

        def calls(row)
          function, file, line, number, request = row.names
          call = Syscalls.name_of(Tracing::Result.number(number) - 1)
          {**request_of(request), function: known(function), file: known(file), line: known(line), call: call,
                                  **figures(row), failed: row.number("failed") || 0, errors: errors(row),
                                  bytes: (row.number("moved") || 0 if Tracing::Syscalls::BYTES.include?(call))}
        end

        def figures(row)
          count, total = %w[calls total_ns].map { |map| row.number(map) || 0 }
          {calls: count, total_ns: total, mean_ns: ratio(total, count)&.round,
           longest_ns: row.number("longest_ns")}
        end

        def errors(row)
          @errors ||= result.parts("errno")
          named_errors(row.keys.map { |key| @errors.fetch(key, {}) })
        end

        # {name => count}, the most frequent error first. parts: [{number => count}, ...]
        def named_errors(parts)
          found = parts.reduce({}) { |all, part| all.merge(part) { |_, one, other| one + other } }
          found.sort_by { |number, count| [-count, number] }.to_h.transform_keys do |number|
            Tracing::Syscalls::ERRORS.fetch(number) { "error #{number}" }
          end
        end
      end

      # With --by line: behind the number of the call, a key of the program's maps has the function's
      # instruction.
      class LinesReport < Report
        private

        def names_of(key, names)
          found = super
          [*found, @lines.place(key.first, key[3], found[2])]
        end

        def found
          @lines ||= Tracing::KernelLines.new(result)
          super
        end

        def calls(row) = super.merge(row.names.last)
      end

      # With --files: the calls with a path. A key of the program's maps has an error and a path, too.
      class FilesReport < Report
        # The key of the function, and the numbers of call and error.
        KEY = /\A(\d+,\s*\d+),\s*(\d+),\s*(\d+),/
        # A path of this length may be cut.
        CUT = 127

        def more
          {**super, cut_paths: number_of { |path| cut?(path, CUT) }, unread_paths: number_of(&:empty?)}
        end

        def not_covered
          cut, unread = more.values_at(:cut_paths, :unread_paths)
          empty = "#{Tracing::Figure.count(unread)} calls have an empty path (fstat)"
          [*super,
           *("#{Tracing::Figure.count(cut)} calls have a path that may be cut after #{CUT} bytes" if
             cut.positive?),
           *("#{empty}, or one that could not be read" if unread.positive?)]
        end

        def errors_missing = 0

        private

        def counted
          found = result.map("file").map { |key, path| entry(key, path) }
          same = found.group_by { |one| one.values_at(:function, :file, :line, :call, :bytes_of_path) }
          same.values.map { |entries| merged(entries) }
        end

        # Two paths that differ only in bytes that are no UTF-8 have the same text, but not the same
        # key.
        def entry(key, path)
          match = key.match(KEY)
          function, number, error = match.captures
          calls, total, longest = %w[calls total_ns longest_ns].map { |map| figure(map, key) }
          told = {call: Syscalls.name_of(number.to_i - 1), path: known(path),
                  bytes_of_path: match.post_match, error: error.to_i, calls: calls}
          {**function(function), **told, total_ns: total, longest_ns: longest}
        end

        def figure(map, key) = Tracing::Result.number(result.map(map)[key]) || 0

        # key: the pid, and the number of the function. The names are whole where @named is 1.
        def function(key)
          maps = %w[function place line].map { |name| result.map(name) }
          whole = Tracing::Result.number(result.map("named")[key]) == 1
          name, file, line = maps.map { |map| map[key] } if whole
          name = UNKNOWN if name.to_s.empty? && Tracing::Result.rest(key).to_i.positive?
          {function: known(name.to_s), file: known(file.to_s), line: known(line.to_i)}
        end

        def merged(entries)
          calls, total = sum(entries, :calls), sum(entries, :total_ns)
          failed = entries.select { |one| one[:error].positive? }
          names = entries.first.slice(:function, :file, :line, :call, :path)
          names.merge(calls: calls, total_ns: total, mean_ns: ratio(total, calls)&.round,
                      longest_ns: entries.map { |one| one[:longest_ns] }.max, failed: sum(failed, :calls),
                      errors: named_errors(failed.map { |one| {one[:error] => one[:calls]} }), bytes: nil)
        end

        # How many calls have a path for which the block returns true.
        def number_of(&block)
          result.map("file").sum { |key, path| block.call(path) ? figure("calls", key) : 0 }
        end
      end

      # number: of the call, -1 for rt_sigreturn, whose number the kernel has replaced.
      def self.name_of(number)
        return "rt_sigreturn" if number == -1

        numbers = Tracing::Syscalls::NUMBERS.fetch(Etc.uname[:machine], {})
        numbers.fetch(number) { "syscall #{number}" }
      end

      # The argument with which offcpu.bt and waits_kernel.bt recognise waits for file locks: one more
      # than the number of flock().
      def self.file_lock
        numbers = Tracing::Syscalls::NUMBERS.fetch(Etc.uname[:machine], {})
        (numbers.key("flock") || -1).succ.to_s
      end

      def initialize
        super
        @failed = false
        @slower = 0
      end

      private

      def options(parser)
        super
        parser.on("--failed", "only calls that returned errors at least once") { @failed = true }
        parser.on("--slower TIME", "count only calls that take at least this long: 100us, 1ms") do |text|
          @slower = [duration(text, "--slower 1ms"), Tracing::Program::LONGEST].min
        end
        parser.on("--files", "rows for each path, of calls that take one: open, stat, mkdir, unlink, ...") do
          @files = true
        end
        parser.on("--by WHAT", "line: a row for each line of Python code") { |what| by(what) }
      end

      def by(what)
        raise CLI::Usage.new("--by takes line, and not #{what.inspect}", "--by line") unless what == "line"

        @lines = true
      end

      def prepare
        super
        return unless @files && (@lines || @by_request)

        other = @lines ? "--by line" : "--by-request"
        raise CLI::Usage.new("--files takes no #{other}", "--files or #{other}, one at a time")
      end

      # Before the interval begins. A trace that is refused has one line of error.
      def heard(answer)
        super
        warn("probescope: #{REACH}") if answer[:is] == "attached"
      end

      def program_arguments = [*super, @slower.to_s]

      def program
        return "syscalls_files_#{machine}.bt" if @files

        @lines ? "syscalls_lines.bt" : PROGRAM
      end

      # The paths of the program have room for FilesReport::CUT bytes and a NUL.
      def strings = (FilesReport::CUT + 1 if @files)

      def machine
        found = Etc.uname[:machine]
        return found if Tracing::Syscalls::NUMBERS.key?(found)

        raise Tracing::Error.new("--files is for #{Tracing::Syscalls::NUMBERS.keys.join(" and ")}, " \
                                 "and this is #{found}", "probescope syscalls without --files")
      end

      def report_of(part)
        kind = @lines ? LinesReport : Report
        kind = FilesReport if @files
        kind.new(part, definition, failed: @failed, slower: @slower, by_request: @by_request)
      end

      def check(result)
        super
        missing = report_of(result).errors_missing
        return unless missing.positive?

        say("#{missing} errors had no room in bpftrace's maps, and are in FAILED without their names: " \
            "PROBESCOPE_MAP_KEYS=#{keys * 4}")
      end
    end
  end
end
