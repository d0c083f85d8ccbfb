"""The lines that a program prints while it runs, one for each event or second."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from probescope.command import cells
from probescope.command.definitions import LINES, OUTCOMES, SCHEMA, Column
from probescope.command.result import Result, iso, ratio
from probescope.command.text import clean, share, to_json

ON = ("on", "degraded")
Event = Dict[str, Any]


class Columns(NamedTuple):
    columns: Tuple[Column, ...] = ()
    # Returns the object that the command's JSON has for a line, or None for a line that is not
    # shown. Raises ValueError or IndexError for a line of another form: a name in the process may
    # contain line breaks, which split its line. The field is None for programs without JSON for each
    # line.
    event: Optional[Callable[[str, Result], Optional[Event]]] = None

    @property
    def heading(self) -> str:
        return self._aligned([column.heading for column in self.columns])

    def show(self, line: str, result: Result) -> str:
        if not self.event:
            return _as_it_is(line)
        try:
            found = self.event(line, result)
        except (ValueError, IndexError):
            return _as_it_is(line)
        if not found:
            return ""
        if found.get("event") == "interval":
            return _interval_text(found)
        return self._aligned([clean(cells.of(column, found)) for column in self.columns])

    def json(self, line: str, result: Result) -> str:
        try:
            found = self.event(line, result) if self.event else None
        except (ValueError, IndexError):
            return ""
        return to_json({"schema": SCHEMA, **found}) if found else ""

    def _aligned(self, texts: List[str]) -> str:
        return "".join(
            f" {text}".rjust(column.width) if column.width else f"  {text}"
            for text, column in zip(texts, self.columns)
        )


def of(program: str) -> Columns:
    return PROGRAMS.get(program, Columns())


def _as_it_is(line: str) -> str:
    return "\t".join(map(clean, line.split("\t")))


STAT = LINES["stat"]
# The probes that light has not.
COSTLY = ("function__stats", "object__stats")


def _figures(line: str, result: Result, light: bool) -> Dict[str, Optional[int]]:
    """A figure is None when its probe is not on."""
    probes = result.known.get("probes", {})
    mark, *words = line.split()
    if mark != "=" or len(words) < len(STAT.printed) - 2:
        raise ValueError("no line of figures")
    found: Dict[str, Optional[int]] = {
        **dict.fromkeys(STAT.printed),
        **dict(zip(STAT.printed, map(int, words))),
    }
    if not result.tells_of_looking:
        found["looking_ns"] = None
    for name, probe in STAT.takes.items():
        if (light and probe in COSTLY) or (probe in probes and probes[probe]["state"] not in ON):
            found[name] = None
    return found


def _interval(begin: datetime, end: datetime, wall: int, cpu: Optional[int], looking: Optional[int]) -> Event:
    """The fields of an interval. wall, cpu, looking: in ns."""
    return {
        "begin": iso(begin),
        "end": iso(end),
        "seconds": round(wall / 1e9, 3),
        "cpu_share": ratio(cpu, wall),
        "looking_share": ratio(looking, cpu or 0),
    }


def _second(line: str, result: Result, light: bool = False) -> Event:
    found = _figures(line, result, light)
    wall = found["wall_ns"] or 0
    ended = result.moment(found["ended"] or 0, found["cut"] or 0)
    began = ended - timedelta(microseconds=wall / 1000)
    told = {name: found[name] for name in STAT.printed[2:10]}
    return {
        "command": "stat",
        "pids": [result.pid],
        **_interval(began, ended, wall, found["cpu_ns"], found["looking_ns"]),
        **told,
        "lost": {"rows": found["rows"], "samples": found["samples_missed"], "details": found["details"]},
    }


def _interval_text(event: Event) -> str:
    begin, end = (cells.clock(event, key) for key in ("begin", "end"))
    cpu, looking = (share(event[key]) for key in ("cpu_share", "looking_share"))
    return f"from {begin} to {end}: {cpu} CPU, {looking} of it for looking"


def _call(line: str, result: Result) -> Optional[Event]:
    """ "> NUMBER PID THREAD CONTEXT DEPTH LINE\\tNAME\\tFILE",
    "< NUMBER PID THREAD CONTEXT DEPTH ELAPSED SELF OUTCOME\\tNAME",
    and each second "= NUMBER PID FROM TO WALL CPU LOOKING". The lines of all threads are mixed.
    """
    figures, _, names = line.partition("\t")
    kind, *words = figures.split()
    numbers: List[int] = list(map(int, words))
    if kind == "=":
        result.numbered.fired(numbers[0])
        return _covered(numbers, result)
    if kind not in ("<", ">"):
        raise ValueError("no event")
    result.numbered.arrived(numbers[0])
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
    times = {
        "elapsed_ns": numbers[5],
        "self_ns": numbers[6],
        "outcome": OUTCOMES.get(numbers[7], OUTCOMES[0]),
    }
    return {**who, "event": "leave", "function": names, **times}


def _covered(numbers: List[int], result: Result) -> Optional[Event]:
    """Returns the interval that has ended, or None for the line that begins the first one."""
    _, pid, begin, end, wall, cpu, looking = numbers
    if begin == end:
        return None
    interval = _interval(result.time(begin), result.time(end), wall, cpu, looking)
    return {"command": "flow", "pid": pid, "event": "interval", **interval}


PROGRAMS: Dict[str, Columns] = {
    "stat": Columns(STAT.columns, _second),
    "light": Columns(STAT.columns, partial(_second, light=True)),
    "flow": Columns(LINES["flow"].columns, _call),
}
