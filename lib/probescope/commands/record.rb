# frozen_string_literal: true

require_relative "stream"
require_relative "own_option"
require_relative "../profile/checkpoints"
require_relative "../profile/destination"
require_relative "../profile/recorder"
require_relative "../profile/tables"
require_relative "../tracing/crash"
require_relative "../tracing/names"
require_relative "../tracing/stack_lines"

module Probescope
  module Commands
    # Records call paths with weights over time, into a file.
    class Record < Stream
      include OwnOption

      PROGRAM = "stacks.bt"
      # 4 MiB: the first second of a large application describes thousands of paths.
      PAGES = 1024
      STRINGS = 200
      USAGE = "record -p PID -o FILE [options]"
      ABOUT = <<~TEXT.freeze
        Records the call paths that are on the CPU, for each second and thread, until Ctrl-C or -d. The
        ending of FILE is the format: #{Profile::Destination::ENDINGS}. Only .pb.gz
        (pprof) can be read back, by `probescope convert`, `go tool pprof`, Parca, Pyroscope and others.
        Prints the first rows of each table, as `probescope convert` does.

        Memory is bounded: a recording with too many figures tells longer spans of time apart than
        seconds, then no threads, and says so. After a minute, and each minute from then on, FILE.part
        has a checkpoint, a .pb.gz, which is left if the command is killed.
      TEXT
      EXAMPLES = <<~TEXT
        probescope record -p 4711 -d 30 -o shop.pb.gz
        probescope record -p 4711 --workers -o shop.pb.gz   until Ctrl-C, with the workers of a server
        probescope convert shop.pb.gz --by self
        go tool pprof -http : shop.pb.gz
      TEXT
      # Rows of each table.
      TOP = 10
      # The most threads with a name: an application may start one for each request.
      THREAD_NAMES = 16_384

      private

      def more_options(parser)
        parser.on("--force", "replaces FILE") { @force = true }
        own_option(parser)
      end

      def options(parser)
        super
        parser.on("-o", "--output FILE", "the file; its ending is the format") { |path| @path = path }
        parser.on("--json", "one JSON object instead of the tables") { @json = true }
      end

      def check_output
        raise CLI::Usage.new("into which file? -o FILE is missing", "-o recording.pb.gz") unless @path

        @destination = Profile::Destination.new(@path, force: @force)
      end

      def prepare
        @kinds = Profile::KINDS
        @recorder = Profile::Recorder.new(@kinds)
        @threads = Hash.new { |all, pid| all[pid] = {} }
        @entry = []
        @named_threads = 0
        @lines = Tracing::StackLines.new(@recorder, process: method(:process)) do |pid, threads|
          threads.each { |id| name_thread(pid, id) }
        end
        @checkpoints = Profile::Checkpoints.new(@destination, say: method(:say)) { recording(nil) }
      end

      # A failure of the trace does not lose what has been recorded until then.
      def call
        check_output
        prepare
        result = begin
          trace_processes
        rescue StandardError => e
          @failed = e
          nil
        end
        report(result)
      ensure
        @checkpoints&.stop
        release_signals
      end

      # As in other commands, but a signal after the trace does not end the command before FILE is written.
      def ending_early(client)
        catch_signals(client)
        yield
      ensure
        # Its process has a copy of the pipe that keeps the trace going.
        @checkpoints.stop
      end

      # With -d, the program itself ends the interval, so what arrives while bpftrace leaves is of it.
      def told(answer) = (super unless answer[:is] == "leaving" && @seconds != FOR_EVER)

      def recorded? = @lines.states.any? { |_, state| state.wall_ns.positive? }

      # Whole minutes may pass before a line has anything to show.
      def progressing(&block)
        @seconds == FOR_EVER ? super : Tracing::Progress.show(@seconds, &block)
      end

      def heard(answer)
        super
        return unless answer[:is] == "attached"

        @alone = answer[:pids].first if answer[:by_pid]
        @entry = answer[:entry].to_a
      end

      # The traced process for the number that bpftrace prints.
      def process(pid) = @alone || (pid if wanted?(pid))

      def receive(text)
        @lines.receive(text)
        @checkpoints.step if recorded?
      end

      # A thread may have got another name meanwhile.
      def name_thread(pid, id)
        known = @threads[pid].key?(id)
        return if !known && @named_threads >= THREAD_NAMES

        name = Tracing::Names.read(pid, "task/#{id}/comm") or return
        @named_threads += 1 unless known
        @threads[pid][id] = name.chomp.force_encoding(Encoding::UTF_8).scrub
      end

      # Nothing is printed before FILE is written: the terminal may be gone, or may take no more.
      def report(result)
        @checkpoints.stop
        @unsaid = []
        check(result)
        raise(@failed || checks(result).nothing_known) unless recorded?

        tell(result)
        recording = recording(result) { |text| say(text) }
        bytes = write(recording)
        release_signals
        print_unsaid
        print_summary(recording, bytes)
        @failed ? raise(failure("#{@path} has what was recorded until then")) : 0
      ensure
        print_unsaid
      end

      # Zlib fails where a signal that has a handler interrupts it.
      def write(recording)
        @handlers&.each_key { |name| trap(name, "IGNORE") }
        @destination.write(recording)
      rescue Tracing::Error => e
        raise(@failed ? failure(e.message) : e)
      end

      # What has ended the trace, and what has become of the figures.
      def failure(outcome)
        failed = @failed.is_a?(Tracing::Error) ? @failed : Tracing::Crash.new(Tracing::Crash.of(@failed))
        Tracing::Error.new("#{failed.message}; #{outcome}", failed.next_step)
      end

      def print_warning(text) = @unsaid ? @unsaid << text : super

      def print_unsaid
        texts, @unsaid = @unsaid, nil
        texts&.each { |text| print_warning(text) }
      end

      # The program itself ends a process's interval, at the first flush after the duration.
      def program_arguments = [Tracing::Program.closing(@seconds)]

      # Takes what has arrived, and says what is missing. result: nil after a failure.
      def check(result)
        missing = missing(result)
        checks(result).of_a_stream(closed: false, told: false, missing: missing, samples: true) if result
      rescue StandardError => e
        @failed = e
      ensure
        tell_losses if @failed
      end

      # Where bpftrace's own counts are not there.
      def tell_losses
        lost.slice(*Tracing::Lost::WARNINGS.keys).each do |what, number|
          say(format(Tracing::Lost::WARNINGS.fetch(what), number: number)) if number.positive?
        end
      end

      # Gives up the lines that have not arrived, and returns how many they are.
      def missing(result)
        @lines.states.each_key { |pid| @lines.rest(pid, last_number(result, pid)) }
        missing = @lines.states.sum { |pid, state| state.numbered.missing(last_number(result, pid)) }
        @missing = [missing, output.lost_events].max
      end

      # The weight of what did not arrive, {kind => weight}: the program adds up all of it.
      def lost_weights(result)
        @kinds.to_h do |kind|
          sums = result.map("sum").map { |key, weight| [*Tracing::Result.numbers(key), weight] }
          mine = sums.select { |pid, number, _| number == kind.number && states.key?(process(pid)) }
          [kind, mine.sum { |pid, number, weight| lost_weight(result, pid, number, weight) }]
        end
      end

      def lost_weight(result, pid, number, weight)
        state = @lines.states[process(pid)]
        last_number(result, process(pid)) ? Tracing::Result.number(weight) - state.weights[number] : 0
      end

      # nil if the interval of the process has not ended: its lines after its last second are not in the
      # recording, and bpftrace drops some of them while it ends.
      def last_number(result, pid)
        result.last_number(pid) if result && (result.ended?(pid) || !result.goes_on?(pid))
      end

      def tell(result)
        tell_lost(result) if result
        @recorder.truncated.each { |text| say("shortened: #{text}") }
        paths = @recorder.lost_paths
        say("#{paths} paths have no names: they were lost") if paths.positive?
        return unless interrupted?(result)

        say("interrupted after #{format("%.1f", seconds)} s")
      end

      def tell_lost(result)
        lost_weights(result).select { |_, weight| weight.positive? }.each do |kind, weight|
          text = Tracing::Cells.weight({unit: kind.unit, weight: weight}, :weight)
          say("#{text} of #{kind.name} is in no row: it was lost with these events")
        end
      end

      def interrupted?(result) = result&.reason == :stopped

      # result: nil for a checkpoint. Yields what there is to say of --own.
      def recording(result, &told)
        recording = @recorder.recording(metadata(result), states.keys)
        recording.begin_ns = moment(@recorder.begin)
        recording.duration_ns = (seconds * 1e9).round
        choose_own(recording, @entry, &told)
        recording
      end

      # The processes with figures.
      def states = @lines.states.select { |_, state| state.wall_ns.positive? }

      def moment(ns) = Tracing::Clock.monotonic_offset + ns
      def iso(ns) = Tracing::Clock.iso(Tracing::Clock.at(ns, Tracing::Clock.monotonic_offset))

      # From the first begin to the last end.
      def seconds
        from, to = states.values.map { |state| [state.began, state.from] }.transpose
        from ? ((to.max - from.min) / 1e9).round(3) : 0.0
      end

      def metadata(result)
        found = states.values
        {schema: Tracing::Definitions::SCHEMA, probescope: VERSION, kinds: @kinds.map(&:described),
         duration: (@seconds unless @seconds == FOR_EVER), by_request: @by_request || false,
         begin: iso(found.map(&:began).min), end: iso(found.map(&:from).max), seconds: seconds,
         bucket_ns: @recorder.bucket_ns, processes: processes(result),
         looking_share: Tracing::Figure.ratio(found.sum(&:looking_ns), found.sum(&:cpu_ns)),
         own: {by: "process", globs: []}, lost: lost, truncated: @recorder.truncated,
         not_covered: [], warnings: @warnings, interrupted: interrupted?(result),
         ended: result ? result.members.any? { |one| one[:ended] } : false}
      end

      def lost
        found = states.values
        {events: @missing || 0,
         rows: found.sum { |state| state.dropped + state.beyond } + @recorder.dropped,
         samples: found.sum(&:missed),
         paths: @recorder.lost_paths}
      end

      def processes(result)
        members = result ? result.members.to_h { |one| [one[:pid], one] } : {}
        left_out = result ? result.processes.select(&:left_out) : []
        states.map { |pid, state| covered(pid, state, members.fetch(pid, {})) } +
          left_out.reject { |one| states.key?(one.pid) }.map do |one|
            {pid: one.pid, **members.fetch(one.pid).slice(:runtime, :version), begin: nil, end: nil,
             seconds: nil, cpu_share: nil, looking_share: nil, left_out: one.left_out, wall_ns: 0, cpu_ns: 0,
             threads: {}}
          end
      end

      def covered(pid, state, member)
        {pid: pid, runtime: member[:runtime], version: member[:version], begin: iso(state.began),
         end: iso(state.from), seconds: (state.wall_ns / 1e9).round(3),
         cpu_share: Tracing::Figure.ratio(state.cpu_ns, state.wall_ns),
         looking_share: Tracing::Figure.ratio(state.looking_ns, state.cpu_ns), left_out: nil,
         wall_ns: state.wall_ns, cpu_ns: state.cpu_ns,
         threads: @threads[pid].transform_keys { |id| id.to_s.to_sym }}
      end

      def print_summary(recording, bytes)
        $stdout.sync = true # what cannot be printed must not come again at the end of the process
        tables = Profile::Tables.new(recording, Profile::Summary.own?(recording) ? "own" : "self", top: TOP)
        if @json
          puts Tracing::Text.answer(name, tables.fields.merge(warnings: @warnings, file: @path, bytes: bytes))
        else
          puts tables.text, "", "#{@path}, #{Tracing::Figure.bytes(bytes)}"
        end
      rescue Errno::EPIPE, Errno::EIO # the reader or the terminal is gone, and FILE is written
        nil
      end
    end
  end
end
