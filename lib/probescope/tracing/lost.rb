# frozen_string_literal: true

# Generated from providers/tracing.yml by `rake generate`. Do not edit.
module Probescope
  module Tracing
    # What a trace could not count.
    module Lost
      # {field in JSON => map of the program}
      MAPS = {
        rows: "rows_dropped",
        map_full: "map_full",
        samples: "samples_missed",
        details: "details_suppressed",
        unread: "unread",
        untold: "untold"
      }.freeze
      # {field => warning}, with the number and the keys that would be enough
      WARNINGS = {
        events: "%<number>d events were lost between the kernel and bpftrace",
        rows: "%<number>d events had no row of their own: the process's memory for names is full (see (overflow))",
        map_full: "%<number>d rows were dropped: bpftrace's maps are full; give them room: PROBESCOPE_MAP_KEYS=%<keys>d",
        samples: "%<number>d samples could not be taken",
        details: "%<number>d exception details were over the limit of 10 a second",
        unread: "%<number>d events have no function: memory of the process could not be read",
        paths: "%<number>d paths have no names: they were lost"
      }.freeze
      # {loss that is not counted => warning}
      UNCOUNTED = {
        cut_off: "bpftrace ended without its last figures: more events may be lost than are counted",
        missed_by_ticks: "the ticks at which samples are taken missed %<share>s of the CPU time of process %<pid>s; shares may be wrong by as many points, and what threads do right after a wait has too few samples (docs/reference/limits.md)"
      }.freeze
    end
  end
end
