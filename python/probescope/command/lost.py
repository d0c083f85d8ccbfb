"""What a trace could not count.

Generated from providers/tracing.yml by `rake generate`. Do not edit.
"""

from __future__ import annotations

# {field in JSON: map of the program}
MAPS = {
    "rows": "rows_dropped",
    "map_full": "map_full",
    "samples": "samples_missed",
    "details": "details_suppressed",
    "unread": "unread",
    "untold": "untold",
}
# {field: warning}, with the number and the keys that would be enough
WARNINGS = {
    "events": "{number} events were lost between the kernel and bpftrace",
    "rows": "{number} events had no row of their own: the process's memory for names is full (see (overflow))",
    "map_full": "{number} rows were dropped: bpftrace's maps are full; give them room: PROBESCOPE_MAP_KEYS={keys}",
    "samples": "{number} samples could not be taken",
    "details": "{number} exception details were over the limit of 10 a second",
    "unread": "{number} events have no function: memory of the process could not be read",
    "paths": "{number} paths have no names: they were lost",
}
# {loss that is not counted: warning}
UNCOUNTED = {
    "cut_off": "bpftrace ended without its last figures: more events may be lost than are counted",
    "missed_by_ticks": "the ticks at which samples are taken missed {share} of the CPU time of process {pid}; shares may be wrong by as many points, and what threads do right after a wait has too few samples (docs/reference/limits.md)",
}
