"""Formats the lines that a program prints while it runs, one for each event or second."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from probescope.command.result import Result, clock, iso, ratio
from probescope.command.text import SCHEMA, clean, count, duration, share, size, to_json

ON = ("on", "degraded")


class Columns(NamedTuple):
    heading: str
    # Formats a line. Raises ValueError or IndexError for a line of another form: a name in the
    # process may contain line breaks, which split its line.
    line: Callable[[str, Result], str]
    # Returns the object for the command's JSON, or None for a line without one. The field is None
    # for programs without JSON for each line.
    event: Optional[Callable[[str, Result], Optional[Dict[str, Any]]]] = None

    def show(self, line: str, result: Result) -> str:
        try:
            return self.line(line, result)
        except (ValueError, IndexError):
            return _as_it_is(line, result)

    def json(self, line: str, result: Result) -> str:
        try:
            found = self.event(line, result) if self.event else None
        except (ValueError, IndexError):
            return ""
        return to_json({"schema": SCHEMA, **found}) if found else ""


def of(program: str) -> Columns:
    return PROGRAMS.get(program, Columns("", _as_it_is))


def _as_it_is(line: str, _result: Result) -> str:
    return "\t".join(map(clean, line.split("\t")))


SECOND = "{:>8}{:>8}{:>12}{:>10}{:>11}{:>12}{:>10}{:>9}{:>8}{:>6}".format
CALL = "{:>9} {:>9}  {}".format


# The fields of a line of stat, after "=" and the PID. TAKES: the probes that fields depend on.
SECOND_WORDS = (
    "wall_ns cpu_ns calls raises backtrace_ns allocations bytes gc_ns samples rows samples_missed details "
    "ended looking_ns cut"
).split()
TAKES = {
    "calls": "function__stats",
    "raises": "exception__stats",
    "backtrace_ns": "exception__stats",
    "allocations": "object__stats",
    "bytes": "object__stats",
    "gc_ns": "gc__done",
    "samples": "sample",
}
COSTLY = ("function__stats", "object__stats")


def _figures(line: str, result: Result, light: bool) -> Dict[str, Optional[int]]:
    """A figure is None when its probe is not on."""
    probes = result.known.get("probes", {})
    mark, _, *words = line.split()
    if mark != "=" or len(words) < len(SECOND_WORDS) - 2:
        raise ValueError("no line of figures")
    found: Dict[str, Optional[int]] = {
        **dict.fromkeys(SECOND_WORDS),
        **dict(zip(SECOND_WORDS, map(int, words))),
    }
    if not result.tells_of_looking:
        found["looking_ns"] = None
    for name, probe in TAKES.items():
        if (light and probe in COSTLY) or (probe in probes and probes[probe]["state"] not in ON):
            found[name] = None
    return found


def _second(line: str, result: Result, light: bool = False) -> str:
    found = _figures(line, result, light)
    wall = found["wall_ns"] or 0
    cells = [
        share(ratio(found["cpu_ns"], wall)),
        share(ratio(found["looking_ns"], found["cpu_ns"] or 0)),
        count(found["calls"]),
        count(found["raises"]),
        duration(found["backtrace_ns"]),
        count(found["allocations"]),
        size(found["bytes"]),
        duration(found["gc_ns"]),
        count(found["samples"]),
        count((found["rows"] or 0) + (found["samples_missed"] or 0)),
    ]
    return SECOND(*cells)


def _interval(
    begin: datetime, end: datetime, wall: int, cpu: Optional[int], looking: Optional[int]
) -> Dict[str, Any]:
    """The JSON of an interval. wall, cpu, looking: in ns."""
    return {
        "begin": iso(begin),
        "end": iso(end),
        "seconds": round(wall / 1e9, 3),
        "cpu_share": ratio(cpu, wall),
        "looking_share": ratio(looking, cpu or 0),
    }


def _second_event(line: str, result: Result, light: bool = False) -> Dict[str, Any]:
    found = _figures(line, result, light)
    wall = found["wall_ns"] or 0
    ended = result.moment(found["ended"] or 0, found["cut"] or 0)
    began = ended - timedelta(microseconds=wall / 1000)
    told = {name: found[name] for name in SECOND_WORDS[1:9]}
    return {
        "command": "stat",
        "pids": [result.pid],
        **_interval(began, ended, wall, found["cpu_ns"], found["looking_ns"]),
        **told,
        "lost": {"rows": found["rows"], "samples": found["samples_missed"], "details": found["details"]},
    }


def _call(line: str, result: Result) -> str:
    """ "> NUMBER PID THREAD CONTEXT DEPTH LINE\\tNAME\\tFILE",
    "< NUMBER PID THREAD CONTEXT DEPTH ELAPSED SELF OUTCOME\\tNAME",
    and each second "= NUMBER PID FROM TO WALL CPU LOOKING".
    """
    figures, _, names = line.partition("\t")
    kind, *words = figures.split()
    numbers = list(map(int, words))
    if kind == "=":
        return _second_over(numbers, result)
    indent = "  " * min(numbers[4], 60)
    if kind == ">":
        name, _, file = names.rpartition("\t")
        return CALL("", "", f"{indent}{clean(name)}  {clean(file)}:{numbers[5]}")
    outcome = ("", "  raised", "  suspended")[numbers[7]]
    return CALL(duration(numbers[5]), duration(numbers[6]), f"{indent}= {clean(names)}{outcome}")


def _second_over(numbers: List[int], result: Result) -> str:
    _, _, begin, end, wall, cpu, looking = numbers
    if begin == end:
        return ""
    times = f"from {clock(result.time(begin))} to {clock(result.time(end))}"
    return f"{times}: {share(cpu / max(wall, 1))} CPU, {share(looking / max(cpu, 1))} of it for looking"


OUTCOMES = ("returned", "raised", "suspended")


def _call_event(line: str, result: Result) -> Optional[Dict[str, Any]]:
    """Returns the event of a line. The lines of all threads are mixed."""
    figures, _, names = line.partition("\t")
    kind, *words = figures.split()
    numbers: List[int] = list(map(int, words))
    if kind == "=":
        return _covered(numbers, result)
    if kind not in ("<", ">"):
        return None
    who = {
        "command": "flow",
        "pid": numbers[1],
        "thread_id": numbers[2],
        "context_id": numbers[3],
        "depth": numbers[4],
    }
    if kind == ">":
        name, _, file = names.rpartition("\t")
        return {**who, "event": "enter", "function": name, "file": file or None, "line": numbers[5]}
    times = {"elapsed_ns": numbers[5], "self_ns": numbers[6], "outcome": OUTCOMES[numbers[7]]}
    return {**who, "event": "leave", "function": names, **times}


def _covered(numbers: List[int], result: Result) -> Optional[Dict[str, Any]]:
    """Returns the interval that has ended, or None for the line that begins the first one."""
    _, pid, begin, end, wall, cpu, looking = numbers
    if begin == end:
        return None
    interval = _interval(result.time(begin), result.time(end), wall, cpu, looking)
    return {"command": "flow", "pid": pid, "event": "interval", **interval}


STAT = SECOND("CPU", "LOOKING", "CALLS", "RAISES", "BACKTRACES", "ALLOCS", "BYTES", "GC", "SAMPLES", "LOST")
PROGRAMS: Dict[str, Columns] = {
    "stat": Columns(STAT, _second, _second_event),
    "light": Columns(STAT, partial(_second, light=True), partial(_second_event, light=True)),
    "flow": Columns(CALL("ELAPSED", "SELF", "CALL"), _call, _call_event),
}
