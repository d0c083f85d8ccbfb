# frozen_string_literal: true

module Probescope
  module Tracing
    # The bpftrace programs, providers/*.bt.
    module Program
      FOLDER = File.expand_path("../../../providers", __dir__)
      # The time between flushes drifts by some milliseconds. A flush that comes up to this many
      # seconds early still ends the interval.
      EARLY = 0.25

      # {ns => name}: the thresholds of slow calls. For each there is a program of that name, and a
      # probe, function__NAME.
      THRESHOLDS = {1_000_000 => "slow1ms", 10_000_000 => "slow10ms", 100_000_000 => "slow100ms"}.freeze
      # The threshold that is used by default, in ns.
      SLOW = 10_000_000
      # The longest time in ns that bpftrace can parse. No call takes that long.
      LONGEST = 1 << 62

      # Programs that find in the kernel what the runtime of a process does not report: {program =>
      # [the other program, the runtimes that it is for]}.
      BY_KERNEL = {"waits" => ["waits_kernel", %w[ruby python]],
                   "waits_by_request" => ["waits_kernel_by_request", %w[ruby python]],
                   "gvl" => ["gvl_kernel", %w[python]]}.freeze

      # Programs that tell lines, and the runtimes whose lines they find.
      LINES = {"syscalls_lines" => %w[python]}.freeze

      # Commands without a program of their own name, and their default program.
      ALIASES = {"slow" => THRESHOLDS[SLOW], "slow_by_request" => "#{THRESHOLDS[SLOW]}_by_request"}.freeze

      module_function

      # The name of the highest threshold up to this time, whose probe fires least often. The
      # program compares each call with the time itself. nil below all thresholds.
      def threshold(time) = THRESHOLDS.select { |least, _| least <= time }.values.last

      def path(file) = File.join(FOLDER, file)

      # {name => path} of every program, and of every command in ALIASES.
      def all
        files = Dir[path("*.bt")].sort.to_h { |file| [File.basename(file, ".bt"), file] }
        files.merge(ALIASES.transform_values { |name| files.fetch(name) })
      end

      # The names of all programs, with those in ALIASES.
      def names = all.keys

      # The argument that makes a program end a process's interval at its first flush after so many
      # seconds.
      def closing(seconds) = ((seconds - EARLY) * 1e9).round.clamp(1, LONGEST).to_s

      # How the values of a map are merged over several processes, where they are not added up:
      # {"max_ns" => :max}.
      def merges(path) = File.read(path).scan(/@(\w+)\[[^=]*\] = (max|min)\(/).to_h.transform_values(&:to_sym)

      # The names of the programs to use for a process of this runtime that does not serve these
      # programs. nil where there are none.
      def by_kernel(names, runtime)
        found = names.map { |name| BY_KERNEL.fetch(name, [name, [runtime]]) }
        others = found.map(&:first)
        others if others != names && found.all? { |_, runtimes| runtimes.include?(runtime) }
      end

      # The kernel's tracepoints in a program: ["category:name", ...].
      def tracepoints(path) = File.read(path).scan(/^tracepoint:(\w+:\w+)/).flatten.uniq

      # The names of the probes in a program. stats__done, which every program has, comes last.
      def probes(path)
        found = File.read(path).scan(/^usdt:\$1:probescope:(\w+)/).flatten.uniq
        found.partition { |name| name != "stats__done" }.flatten
      end
    end
  end
end
