# frozen_string_literal: true

# Generated from providers/info.yml by `rake generate`. Do not edit.
module Probescope
  module Tracing
    # The layout of probescope_info in a process. Each field has its offset, its number of
    # bytes, and its type for String#unpack.
    module InfoLayout
      MAGIC = "PSCOPE1"
      # Names of the states, by their numbers.
      STATES = %w[off on degraded refused unsupported].freeze
      FLAGS = {installed: 1, watcher: 2, jit: 4, cycle_clock: 8, requests: 16}.freeze

      # The layout of the rest.
      HEAD = {
        magic: [0, 8, "Z8"],
        size: [8, 4, "L<"],
        abi: [12, 4, "L<"],
        sequence: [16, 4, "L<"],
        probe_count: [20, 4, "L<"],
        probe_size: [24, 4, "L<"],
        probes_offset: [28, 4, "L<"]
      }.freeze

      # Fields of every library.
      PROCESS = {
        runtime: [32, 16, "Z16"],
        version: [48, 32, "Z32"],
        library: [80, 16, "Z16"],
        pid: [96, 4, "l<"],
        flags: [100, 4, "L<"],
        memory_limit: [104, 8, "Q<"],
        memory_used: [112, 8, "Q<"],
        rows_dropped: [120, 8, "Q<"],
        flushes: [128, 8, "Q<"],
        switches: [136, 8, "Q<"],
        watcher_ticks: [144, 8, "Q<"],
        note: [152, 128, "Z128"]
      }.freeze

      # Fields of later libraries only.
      APPENDED = {
        asked_ns: [280, 8, "Q<"],
        hooks_in_ns: [288, 8, "Q<"],
        looking_ns: [296, 8, "Q<"],
        looked_cpu_ns: [304, 8, "Q<"],
        overhead_limit: [312, 8, "Q<"],
        cut: [320, 8, "Q<"],
        ticked_ran_ns: [328, 8, "Q<"],
        ticked_met_ns: [336, 8, "Q<"],
        ticked_met: [344, 8, "Q<"]
      }.freeze

      # A row for each probe.
      PROBE = {
        name: [0, 24, "Z24"],
        state: [24, 4, "L<"],
        enabled: [28, 4, "L<"],
        semaphore: [32, 8, "Q<"],
        reason: [40, 120, "Z120"],
        out_ns: [160, 8, "Q<"]
      }.freeze
    end
  end
end
