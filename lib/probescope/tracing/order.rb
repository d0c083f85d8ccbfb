# frozen_string_literal: true

module Probescope
  module Tracing
    # What to trace, and how. A command sends it to the helper, where Request checks it; the bridge
    # uses it directly.
    Order = Struct.new(
      :pids, # pids of processes to trace
      :comm, # name of processes to trace
      :workers, # whether to trace their children, too
      :trust, # rubocop:disable Lint/StructNewOverride -- trust other users' libraries too (Library)
      :programs, # names in providers/; the output of the first one is shown
      :arguments, # the programs' arguments from $2 on
      :seconds,
      :max_overhead, # highest share of the CPU time that looking may take
      :some, # whether a process that serves only some of the probes is traced
      :keys, # rows of each of bpftrace's maps
      :pages, # pages of bpftrace's buffer on each CPU
      :strings, # longest string in bytes; nil for bpftrace's default
      :event, # fields of the Event that the program on.bt or on_stack.bt counts; nil for others
      keyword_init: true
    ) do
      # Frozen: a different Order is a new one.
      def self.of(**fields) = new(**fields).freeze

      # The fields that are not nil.
      def fields = to_h.compact
    end

    # The most processes of one Order. Each is read every 20 ms.
    Order::MOST = 500
  end
end
