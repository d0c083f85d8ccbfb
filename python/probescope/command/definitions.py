"""The fields and columns of each command that shows a table or lines."""

# Made by `rake generate` from docs/schema/schemas.yml.

from __future__ import annotations

from typing import Dict, NamedTuple, Optional, Tuple


class Column(NamedTuple):
    """kind: name of a function of probescope.command.cells. key: a key of the row, or None. width:
    characters of a line's column.
    """

    heading: str
    kind: str
    key: Optional[str]
    optional: bool
    width: Optional[int] = None


class Definition(NamedTuple):
    """fields: keys of a row in JSON. nothing, not_covered: texts; not_covered may be None.
    map_keys: number of rows for which bpftrace has room. map_keys_by_request: the same for the
    program that tells requests apart. samples: whether the figures come from samples, which
    have a rate.
    """

    fields: Tuple[str, ...]
    columns: Tuple[Column, ...]
    nothing: str
    not_covered: Optional[str]
    map_keys: int
    map_keys_by_request: int
    samples: bool


class Line(NamedTuple):
    """A command that prints a line for each event. printed: the fields that its program prints
    after a mark. takes: {figure: probe without which it is not known}.
    """

    columns: Tuple[Column, ...]
    printed: Tuple[str, ...]
    takes: Dict[str, str]


ALL: Dict[str, Definition] = {
    "hot": Definition(
        fields=(
            "pid",
            "method",
            "route",
            "file",
            "line",
            "function",
            "self_share",
            "total_share",
            "samples",
            "largest_line",
            "called",
            "outside",
            "builtins",
        ),
        columns=(
            Column("SELF", "share", "self_share", False),
            Column("TOTAL", "share", "total_share", False),
            Column("SAMPLES", "count", "samples", False),
            Column("FUNCTION", "text", "function", False),
            Column("DEFINED AT", "place", None, False),
            Column("LINE", "number", "largest_line", True),
            Column("CALLED", "largest_called", "called", True),
            Column("IN C", "largest_builtin", "builtins", True),
        ),
        nothing="the process was not on the CPU",
        not_covered=None,
        map_keys=16_384,
        map_keys_by_request=49_152,
        samples=True,
    ),
    "lines": Definition(
        fields=(
            "pid",
            "file",
            "line",
            "function",
            "self_share",
            "samples",
            "called",
            "outside",
        ),
        columns=(
            Column("SELF", "share", "self_share", False),
            Column("SAMPLES", "count", "samples", False),
            Column("LINE", "place", None, False),
            Column("FUNCTION", "text", "function", False),
            Column("CALLED", "largest_called", "called", True),
        ),
        nothing="the process was not on the CPU",
        not_covered=None,
        map_keys=16_384,
        map_keys_by_request=16_384,
        samples=True,
    ),
    "exceptions": Definition(
        fields=(
            "pid",
            "method",
            "route",
            "file",
            "line",
            "type",
            "function",
            "count",
            "per_second",
            "backtrace_cost_ns",
            "capture_ns",
            "strings_ns",
            "cpu_share",
            "mean_depth",
            "app_at",
            "rescued_at",
            "formatted_at",
            "rescued_at_once_share",
        ),
        columns=(
            Column("CPU", "share", "cpu_share", False),
            Column("BACKTRACES", "time", "backtrace_cost_ns", False),
            Column("STRINGS", "time_above_zero", "strings_ns", True),
            Column("RAISED", "count", "count", False),
            Column("PER S", "decimal", "per_second", False),
            Column("DEPTH", "decimal", "mean_depth", False),
            Column("TYPE", "text", "type", False),
            Column("RAISED AT", "place", None, False),
            Column("IN", "text", "function", False),
            Column("APP AT", "text", "app_at", True),
            Column("AT ONCE", "share", "rescued_at_once_share", True),
            Column("RESCUED AT", "text", "rescued_at", True),
            Column("FORMATTED AT", "text", "formatted_at", True),
        ),
        nothing="no exception was raised",
        not_covered=None,
        map_keys=16_384,
        map_keys_by_request=16_384,
        samples=False,
    ),
    "backtraces": Definition(
        fields=(
            "pid",
            "file",
            "line",
            "call",
            "function",
            "count",
            "total_ns",
            "mean_ns",
            "max_ns",
            "mean_depth",
            "cpu_share",
            "type",
            "raised_at",
        ),
        columns=(
            Column("CPU", "share", "cpu_share", False),
            Column("TOTAL", "time", "total_ns", False),
            Column("COUNT", "count", "count", False),
            Column("MEAN", "time", "mean_ns", False),
            Column("MAX", "time", "max_ns", False),
            Column("FRAMES", "decimal", "mean_depth", False),
            Column("CALL", "text", "call", False),
            Column("ASKED AT", "place", None, False),
            Column("IN", "text", "function", False),
            Column("LAST OF", "raised_exception", "type", True),
        ),
        nothing="no backtrace was turned into strings",
        not_covered=None,
        map_keys=16_384,
        map_keys_by_request=16_384,
        samples=False,
    ),
    "calls": Definition(
        fields=(
            "pid",
            "file",
            "line",
            "function",
            "calls",
            "elapsed_ns",
            "self_ns",
            "mean_ns",
            "max_ns",
            "raised",
            "counted_until",
        ),
        columns=(
            Column("SELF", "time", "self_ns", False),
            Column("ELAPSED", "time", "elapsed_ns", False),
            Column("CALLS", "count", "calls", False),
            Column("MEAN", "time", "mean_ns", False),
            Column("MAX", "time", "max_ns", False),
            Column("RAISED", "count", "raised", False),
            Column("FUNCTION", "counted_function", "function", False),
            Column("DEFINED AT", "place", None, False),
        ),
        nothing="no function of the application was called",
        not_covered="calls that were under way when the interval began or ended",
        map_keys=16_384,
        map_keys_by_request=16_384,
        samples=False,
    ),
    "alloc": Definition(
        fields=(
            "pid",
            "method",
            "route",
            "file",
            "line",
            "class",
            "count",
            "bytes",
            "count_share",
        ),
        columns=(
            Column("SHARE", "share", "count_share", False),
            Column("COUNT", "count", "count", False),
            Column("BYTES", "bytes", "bytes", False),
            Column("CLASS", "text", "class", False),
            Column("ALLOCATED AT", "place", None, False),
        ),
        nothing="nothing was allocated",
        not_covered=None,
        map_keys=32_768,
        map_keys_by_request=49_152,
        samples=False,
    ),
    "requests": Definition(
        fields=(
            "pid",
            "method",
            "route",
            "status",
            "count",
            "per_second",
            "total_ns",
            "mean_ns",
            "p50_ns",
            "p99_ns",
            "max_ns",
            "errors",
            "statuses",
            "histogram",
            "time_share",
        ),
        columns=(
            Column("SHARE", "share", "time_share", False),
            Column("REQUESTS", "count", "count", False),
            Column("PER S", "decimal", "per_second", False),
            Column("MEAN", "time", "mean_ns", False),
            Column("P50", "time", "p50_ns", False),
            Column("P99", "time", "p99_ns", False),
            Column("MAX", "time", "max_ns", False),
            Column("STATUS", "status", "status", False),
            Column("METHOD", "text", "method", False),
            Column("ROUTE", "text", "route", False),
        ),
        nothing="no request ended in that time",
        not_covered="requests that were under way when the interval began or ended",
        map_keys=32_768,
        map_keys_by_request=32_768,
        samples=False,
    ),
    "slow": Definition(
        fields=(
            "pid",
            "method",
            "route",
            "file",
            "line",
            "function",
            "elapsed_ns",
            "self_ns",
            "at",
            "outcome",
            "thread_id",
            "traceparent",
        ),
        columns=(
            Column("ELAPSED", "time", "elapsed_ns", False),
            Column("SELF", "time", "self_ns", False),
            Column("ENDED", "clock", "at", False),
            Column("THREAD", "number", "thread_id", False),
            Column("FUNCTION", "nested_call", "function", False),
            Column("DEFINED AT", "place", None, False),
            Column("TRACE", "trace_id", "traceparent", False),
        ),
        nothing="no call of the application took so long",
        not_covered="calls that were under way when the interval began or ended",
        map_keys=16_384,
        map_keys_by_request=16_384,
        samples=False,
    ),
    "gc": Definition(
        fields=(
            "pid",
            "kind",
            "count",
            "total_ns",
            "mean_ns",
            "max_ns",
            "live_objects",
            "freed_objects",
            "histogram",
            "wall_share",
        ),
        columns=(
            Column("SHARE", "share", "wall_share", False),
            Column("TOTAL", "time", "total_ns", False),
            Column("COUNT", "count", "count", False),
            Column("MEAN", "time", "mean_ns", False),
            Column("MAX", "time", "max_ns", False),
            Column("LIVE", "count", "live_objects", True),
            Column("FREED", "count", "freed_objects", True),
            Column("KIND", "text", "kind", False),
        ),
        nothing="no garbage was collected",
        not_covered=None,
        map_keys=16_384,
        map_keys_by_request=16_384,
        samples=False,
    ),
    "syscalls": Definition(
        fields=(
            "pid",
            "method",
            "route",
            "file",
            "line",
            "line_is",
            "function",
            "call",
            "calls",
            "total_ns",
            "mean_ns",
            "longest_ns",
            "failed",
            "errors",
            "bytes",
            "path",
        ),
        columns=(
            Column("TOTAL", "time", "total_ns", False),
            Column("CALLS", "count", "calls", False),
            Column("MEAN", "time", "mean_ns", False),
            Column("LONGEST", "time", "longest_ns", False),
            Column("FAILED", "errors", "failed", True),
            Column("BYTES", "bytes", "bytes", True),
            Column("CALL", "text", "call", False),
            Column("FUNCTION", "text", "function", False),
            Column("DEFINED AT", "place_of_definition", "line", True),
            Column("AT", "place_of_line", "line_is", True),
            Column("PATH", "text", "path", True),
        ),
        nothing="no thread of a traced function made a system call",
        not_covered="calls that were under way when the interval ended",
        map_keys=32_768,
        map_keys_by_request=32_768,
        samples=False,
    ),
    "offcpu": Definition(
        fields=(
            "pid",
            "method",
            "route",
            "file",
            "line",
            "function",
            "blocked_ns",
            "queued_ns",
            "times",
            "longest_ns",
            "reasons",
            "woken_by",
        ),
        columns=(
            Column("BLOCKED", "time", "blocked_ns", False),
            Column("QUEUED", "time", "queued_ns", False),
            Column("TIMES", "count", "times", False),
            Column("LONGEST", "time", "longest_ns", False),
            Column("REASON", "largest_reason", "reasons", False),
            Column("FUNCTION", "traced_function", "function", False),
            Column("DEFINED AT", "place", None, False),
            Column("WOKEN BY", "largest_waker", "woken_by", True),
        ),
        nothing="no thread was off the CPU",
        not_covered=None,
        map_keys=16_384,
        map_keys_by_request=32_768,
        samples=False,
    ),
    "on": Definition(
        fields=(
            "pid",
            "method",
            "route",
            "file",
            "line",
            "function",
            "events",
            "per_second",
            "sum",
            "callers",
            "share",
        ),
        columns=(
            Column("SHARE", "share", "share", False),
            Column("EVENTS", "count", "events", False),
            Column("PER S", "decimal", "per_second", False),
            Column("SUM", "signed", "sum", True),
            Column("FUNCTION", "text", "function", False),
            Column("DEFINED AT", "place", None, False),
            Column("CALLED BY", "callers", "callers", True),
        ),
        nothing="the event happened in no thread of a traced function",
        not_covered=None,
        map_keys=32_768,
        map_keys_by_request=32_768,
        samples=False,
    ),
    "gvl": Definition(
        fields=(
            "pid",
            "thread_id",
            "name",
            "waits",
            "total_ns",
            "mean_ns",
            "max_ns",
            "wall_share",
        ),
        columns=(
            Column("SHARE", "share", "wall_share", False),
            Column("TOTAL", "time", "total_ns", False),
            Column("WAITS", "count", "waits", False),
            Column("MEAN", "time", "mean_ns", False),
            Column("MAX", "time", "max_ns", False),
            Column("THREAD", "number", "thread_id", False),
            Column("NAME", "text", "name", False),
        ),
        nothing="no thread waited for the VM lock",
        not_covered="waits that were under way when the interval ended",
        map_keys=16_384,
        map_keys_by_request=16_384,
        samples=False,
    ),
    "waits": Definition(
        fields=(
            "pid",
            "method",
            "route",
            "file",
            "line",
            "what",
            "call",
            "line_is",
            "function",
            "waits",
            "blocked_ns",
            "vm_lock_ns",
            "mean_ns",
            "longest_ns",
            "holders",
            "blocked_share",
        ),
        columns=(
            Column("SHARE", "share", "blocked_share", False),
            Column("BLOCKED", "time", "blocked_ns", False),
            Column("VM LOCK", "time_above_zero", "vm_lock_ns", True),
            Column("WAITS", "count", "waits", False),
            Column("MEAN", "time", "mean_ns", False),
            Column("LONGEST", "time", "longest_ns", False),
            Column("WAITS FOR", "text", "what", False),
            Column("AT", "place_of_wait", "line", False),
            Column("FUNCTION", "text", "function", False),
            Column("ENDED BY", "largest_holder", "holders", True),
        ),
        nothing="no thread waited",
        not_covered="waits that were under way when the interval ended",
        map_keys=16_384,
        map_keys_by_request=32_768,
        samples=False,
    ),
}

LINES: Dict[str, Line] = {
    "stat": Line(
        columns=(
            Column("CPU", "share", "cpu_share", False, 8),
            Column("LOOKING", "share", "looking_share", False, 8),
            Column("CALLS", "count", "calls", False, 12),
            Column("RAISES", "count", "raises", False, 10),
            Column("BACKTRACES", "time", "backtrace_ns", False, 11),
            Column("ALLOCS", "count", "allocations", False, 12),
            Column("BYTES", "bytes", "bytes", False, 10),
            Column("GC", "time", "gc_ns", False, 9),
            Column("SAMPLES", "count", "samples", False, 8),
            Column("LOST", "lost_rows_and_samples", "lost", False, 6),
        ),
        printed=(
            "pid",
            "wall_ns",
            "cpu_ns",
            "calls",
            "raises",
            "backtrace_ns",
            "allocations",
            "bytes",
            "gc_ns",
            "samples",
            "rows",
            "samples_missed",
            "details",
            "ended",
            "looking_ns",
            "cut",
        ),
        takes={
            "calls": "function__stats",
            "raises": "exception__stats",
            "backtrace_ns": "exception__stats",
            "allocations": "object__stats",
            "bytes": "object__stats",
            "gc_ns": "gc__done",
            "samples": "sample",
        },
    ),
    "flow": Line(
        columns=(
            Column("ELAPSED", "time_at_end", "elapsed_ns", False, 9),
            Column("SELF", "time_at_end", "self_ns", False, 10),
            Column("CALL", "live_call", "function", False),
        ),
        printed=(),
        takes={},
    ),
}

# The columns of what commands list: {command: {field: columns}}.
LISTS: Dict[str, Dict[str, Tuple[Column, ...]]] = {
    "ps": {
        "rows": (
            Column("PID", "number", "pid", False),
            Column("NAME", "text", "name", False),
            Column("RUNTIME", "text", "runtime", False),
            Column("VERSION", "text", "version", False),
            Column("ABI", "number", "abi", False),
            Column("LIBRARY", "library", "library", False),
            Column("ENABLED", "words", "enabled", False),
        ),
    },
    "status": {
        "own": (
            Column("OF ITS OWN", "text", "name", False),
            Column("ARGUMENTS", "number", "arguments", False),
            Column("LISTENED", "yes_or_no", "listened", False),
            Column("LIBRARY", "path_or_none", "path", False),
        ),
        "rows": (
            Column("PROBE", "text", "name", False),
            Column("STATE", "text", "state", False),
            Column("LISTENED", "yes_or_no", "listened", False),
            Column("REASON", "words", "reason", False),
        ),
    },
}

# The version of the JSON. Within a version, fields are added, and no field changes its meaning.
SCHEMA = 1
# How a call ended, as probes tell it.
OUTCOMES = {0: "returned", 1: "raised", 2: "suspended"}
# Rows that bpftrace has room for, unless a command says otherwise.
MAP_KEYS = 16_384
# Fields of the process in the JSON of status.
PROCESS = (
    "pid",
    "runtime",
    "version",
    "library",
    "abi",
    "path",
    "deleted",
    "flags",
    "memory_limit",
    "memory_used",
    "rows_dropped",
    "flushes",
    "switches",
    "watcher_ticks",
    "note",
)
