"""What a program keeps in its maps until its end, as one table: a row for each place, a column for each map."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from probescope.command.columns import BY_REQUEST
from probescope.command.text import clean, duration


class Shape(NamedTuple):
    """maps: those to show; the rows with the most in the first one come first. what, where: headings of a row's name and place.

    nothing: what there is to say without a row.
    """

    maps: Tuple[str, ...]
    what: str
    where: str = ""
    nothing: str = "nothing to tell in that time"


SHAPES = {
    "alloc": Shape(("allocated", "bytes"), "CLASS", "ALLOCATED AT"),
    "backtraces": Shape(("total_ns", "calls", "max_ns"), "CALL", "ASKED AT"),
    "calls": Shape(("self_ns", "elapsed_ns", "calls", "max_ns", "raised"), "FUNCTION", "DEFINED AT"),
    "exceptions": Shape(("strings_ns", "backtrace_ns", "raised"), "TYPE", "RAISED AT"),
    "gc": Shape(("total_ns", "collections", "max_ns"), "KIND"),
    "gvl": Shape(("total_ns", "waits", "max_ns"), "THREAD"),
    "hot": Shape(("self_ns", "total_ns", "samples"), "FUNCTION", "DEFINED AT"),
    "lines": Shape(("self_ns", "samples"), "FUNCTION", "LINE"),
    "requests": Shape(
        ("elapsed_ns", "requests", "max_ns"),
        "METHOD",
        "ROUTE",
        "no request ended (does the application have probescope.wsgi() or probescope.asgi() around it?)",
    ),
}
LOST = {
    "map_full": "rows had no room in bpftrace's maps",
    "rows_dropped": "events had no row of their own in the process",
    "samples_missed": "samples could not be taken",
}
MOST = 20
# Since then bpftrace's `nsecs` goes on while the machine is suspended.
BOOTTIME_SINCE = (5, 8)


def has_table(program: str) -> bool:
    return _name(program) in SHAPES


class Tables:
    def __init__(self, pid: int, program: str) -> None:
        self._pid = pid
        self._by_request = program.endswith(BY_REQUEST)
        self._shape = SHAPES.get(_name(program))
        self._maps: Dict[str, Dict[str, Any]] = {}

    def add(self, maps: Dict[str, Dict[str, Any]]) -> None:
        """maps: as `bpftrace -f json` prints them; their keys mean something to that bpftrace alone."""
        for name, rows in maps.items():
            self._maps.setdefault(name[1:], {}).update(rows)

    def lines(self) -> List[str]:
        lines = self._table(self._shape) if self._shape else []
        wall, cpu = self._sum("wall_ns"), self._sum("cpu_ns")
        if wall:
            taken = self._sum("samples_taken")
            rate = f", {taken * 1e9 / cpu:.0f} samples a second of it" if taken and cpu else ""
            looking = (
                f", {100 * self._sum('looking_ns') / cpu:.1f} % of it for looking"
                if cpu and "looking_ns" in self._maps
                else ""
            )
            lines.append(
                f"\nprocess {self._pid}, {wall / 1e9:.1f} s, {100 * cpu / wall:.1f} % CPU{rate}{looking}{self._span()}"
            )
        return lines + [f"{self._sum(name):,} {text}" for name, text in LOST.items() if self._sum(name)]

    def covered(self) -> bool:
        """Whether an interval of the process has ended."""
        return bool(self._sum("wall_ns"))

    def _span(self) -> str:
        began, ended = (_time_of_day(self._sum(name)) for name in ("began", "ended"))
        return f", from {began} to {ended}" if began and ended else ""

    def _table(self, shape: Shape) -> List[str]:
        def figure(name: str, key: str) -> int:
            return int(self._maps.get(name, {}).get(key, 0))

        found = self._maps.get("row", {})
        if not found:
            return [shape.nothing]
        keys = sorted(found, key=lambda key: ([-figure(name, key) for name in shape.maps], key))
        columns = [[_title(name), *(_figure(name, figure(name, key)) for key in keys[:MOST])] for name in shape.maps]
        widths = [max(map(len, column)) for column in columns]
        names = [[shape.what, *(clean(found[key][0]) for key in keys[:MOST])]]
        if shape.where:
            names.append([shape.where, *(clean(_where(shape, found[key])) for key in keys[:MOST])])
        if self._by_request:
            # A row's last value is its request's number.
            requests = {int(number): clean(label) for number, label in self._maps.get("request", {}).values()}
            names.append(["REQUEST", *(requests.get(int(found[key][-1]), "-") for key in keys[:MOST])])
        rooms = [max(map(len, column)) for column in names[:-1]] + [0]
        lines = [""]
        for cells in zip(zip(*columns), zip(*names)):
            figures = "  ".join(cell.rjust(width) for cell, width in zip(cells[0], widths))
            lines.append(f"{figures}  {'  '.join(map(str.ljust, cells[1], rooms))}".rstrip())
        return [*lines, f"\n{len(keys) - MOST} more rows"] if len(keys) > MOST else lines

    def _sum(self, name: str) -> int:
        """Of what is kept for the process as a whole."""
        return sum(map(int, self._maps.get(name, {}).values()))


def _name(program: str) -> str:
    return program[: -len(BY_REQUEST)] if program.endswith(BY_REQUEST) else program


def _time_of_day(nsecs: int) -> Optional[str]:
    """Of bpftrace's `nsecs`; None where they are 0."""
    if not nsecs:
        return None
    release = tuple(int(number) for number in os.uname().release.split("-")[0].split(".")[:2])
    clock = time.CLOCK_BOOTTIME if release >= BOOTTIME_SINCE else time.CLOCK_MONOTONIC
    at = time.time_ns() - time.clock_gettime_ns(clock) + nsecs
    return f"{time.strftime('%H:%M:%S', time.localtime(at // 10**9))}.{at // 10**6 % 1000:03}"


def _where(shape: Shape, row: List[Any]) -> str:
    return f"{row[1]} ({row[2]}xx)" if shape.where == "ROUTE" else ":".join(map(str, row[1:3]))


def _title(name: str) -> str:
    return name.replace("_ns", "").upper()


def _figure(name: str, value: int) -> str:
    return duration(value) if name.endswith("_ns") else f"{value:,}"
