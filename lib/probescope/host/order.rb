# frozen_string_literal: true

module Probescope
  module Host
    # What is to be traced, and how: from a command to its helper, where Request checks it on its
    # way, and within the bridge.
    Order = Struct.new(
      :pids,         # which processes: those of these numbers,
      :comm,         # those of that name,
      :workers,      # and their children
      :trust,        # rubocop:disable Lint/StructNewOverride -- also with libraries of other users (Library)
      :programs,     # files in our own folder; the first one's output counts
      :arguments,    # what the programs find in $2 and later
      :seconds,
      :max_overhead, # of the CPU time that looking may take
      :some,         # whether a part of the probes is worth tracing
      :keys,         # rows that bpftrace has room for in each map
      :pages,        # of its buffer on each CPU
      :strings,      # bytes of the longest one that it takes; nil for its own default
      keyword_init: true
    ) do
      # Frozen: whoever needs another one makes it.
      def self.of(**fields) = new(**fields).freeze

      # What is not nil.
      def fields = to_h.compact
    end
  end
end
