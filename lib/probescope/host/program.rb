# frozen_string_literal: true

module Probescope
  module Host
    # One of providers/*.bt.
    module Program
      FOLDER = File.expand_path("../../../providers", __dir__)
      # Flushes drift by some milliseconds: one that comes so many seconds before the time is up
      # ends the interval.
      EARLY = 0.25

      # Names of commands whose program has another one, which it is by default: a program waits for
      # one of slow's thresholds.
      ALIASES = {"slow" => "slow10ms", "slow_by_request" => "slow10ms_by_request"}.freeze

      module_function

      def path(file) = File.join(FOLDER, file)

      # {name => path} of every program, and of every command that has one.
      def all
        files = Dir[path("*.bt")].sort.to_h { |file| [File.basename(file, ".bt"), file] }
        files.merge(ALIASES.transform_values { |name| files.fetch(name) })
      end

      # Of every program and its other names.
      def names = all.keys

      # The argument by which a program ends the interval of a process at its first flush after so
      # many seconds.
      def closing(seconds) = ((seconds - EARLY) * 1e9).round.clamp(1, 1 << 62).to_s

      # How a map's values for several processes become one, where they are not added up: {"max_ns"
      # => :max}.
      def merges(path) = File.read(path).scan(/@(\w+)\[[^=]*\] = (max|min)\(/).to_h.transform_values(&:to_sym)

      # The names of the probes that a program waits for, those that it is about before stats__done,
      # which every program has.
      def probes(path)
        found = File.read(path).scan(/^usdt:\$1:probescope:(\w+)/).flatten.uniq
        found.partition { |name| name != "stats__done" }.flatten
      end
    end
  end
end
