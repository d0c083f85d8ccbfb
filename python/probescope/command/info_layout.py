"""The layout of probescope_info in a process.

Generated from providers/info.yml by `rake generate`. Do not edit.
"""

from __future__ import annotations

from typing import Dict, Tuple

# Each field has its offset, and its type for struct.
Fields = Dict[str, Tuple[int, str]]

MAGIC = b"PSCOPE1"
# Names of the states, by their numbers.
STATES = ("off", "on", "degraded", "refused", "unsupported")
FLAGS = {"installed": 1, "watcher": 2, "jit": 4, "cycle_clock": 8, "requests": 16}

# The layout of the rest.
HEAD: Fields = {
    "magic": (0, "8s"),
    "size": (8, "I"),
    "abi": (12, "I"),
    "sequence": (16, "I"),
    "probe_count": (20, "I"),
    "probe_size": (24, "I"),
    "probes_offset": (28, "I"),
}

# Fields of every library.
PROCESS: Fields = {
    "runtime": (32, "16s"),
    "version": (48, "32s"),
    "library": (80, "16s"),
    "pid": (96, "i"),
    "flags": (100, "I"),
    "memory_limit": (104, "Q"),
    "memory_used": (112, "Q"),
    "rows_dropped": (120, "Q"),
    "flushes": (128, "Q"),
    "switches": (136, "Q"),
    "watcher_ticks": (144, "Q"),
    "note": (152, "128s"),
}

# Fields of later libraries only.
APPENDED: Fields = {
    "asked_ns": (280, "Q"),
    "hooks_in_ns": (288, "Q"),
    "looking_ns": (296, "Q"),
    "looked_cpu_ns": (304, "Q"),
    "overhead_limit": (312, "Q"),
    "cut": (320, "Q"),
    "ticked_ran_ns": (328, "Q"),
    "ticked_met_ns": (336, "Q"),
    "ticked_met": (344, "Q"),
}

# A row for each probe.
PROBE: Fields = {
    "name": (0, "24s"),
    "state": (24, "I"),
    "enabled": (28, "I"),
    "semaphore": (32, "Q"),
    "reason": (40, "120s"),
    "out_ns": (160, "Q"),
}
