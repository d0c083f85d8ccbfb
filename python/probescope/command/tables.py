"""What a program prints of its maps at its end, as one table: a row for each place, a column for each map."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Tuple

from probescope.command.text import clean, duration

ROW = re.compile(r"@(\w+)\[(\d+)(?:, (.*))?\]: (-?\d+)")
NOISE = re.compile(r"Attach(ing|ed) \d+ probe|\s*$")
# What the places of a program are called: its key, where its key lies.
HEADINGS = {
    "alloc": ("CLASS", "ALLOCATED AT"),
    "backtraces": ("CALL", "ASKED AT"),
    "exceptions": ("TYPE", "RAISED AT"),
    "gc": ("KIND", ""),
    "gvl": ("THREAD", ""),
    "lines": ("FUNCTION", "LINE"),
}
# A program prints so many rows of each map, the largest.
MOST = 20


class Tables:
    def __init__(self, pid: int, program: str) -> None:
        self._pid = pid
        self._headings = HEADINGS.get(program, ("FUNCTION", "DEFINED AT"))
        self._maps: Dict[str, Dict[str, int]] = {}
        self._single: Dict[str, int] = {}

    def add(self, line: str) -> bool:
        """True when it takes the line: a row of a map, or nothing that anybody wants to see."""
        match = ROW.fullmatch(line)
        if not match:
            return bool(NOISE.match(line))
        name, _, key, value = match.groups()
        # One process is traced; an older bpftrace in a container numbers it in its own way.
        if key is None:
            self._single[name] = self._single.get(name, 0) + int(value)
        else:
            self._maps.setdefault(name, {})[key] = int(value)
        return True

    def empty(self) -> bool:
        return not self._maps

    def lines(self) -> List[str]:
        """Those first that are the largest in the map that the program prints last."""
        lines = self._table() if self._maps else []
        if "wall_ns" in self._single:
            wall, cpu = self._single["wall_ns"], self._single.get("cpu_ns")
            share = f", {100 * cpu / wall:.1f} % CPU" if cpu is not None and wall else ""
            taken = self._single.pop("samples_taken", None)
            rate = f", {taken * 1e9 / cpu:.0f} samples a second of it" if taken is not None and cpu else ""
            lines.append(f"\nprocess {self._pid}, {wall / 1e9:.1f} s{share}{rate}")
        for name, value in self._single.items():
            if name not in ("wall_ns", "cpu_ns") and value:
                lines.append(f"{_title(name).lower()}: {value:,}")
        return lines

    def _table(self) -> List[str]:
        maps = list(self._maps.items())[::-1]
        keys = list(dict.fromkeys(key for _, rows in maps for key in sorted(rows, key=lambda key: (-rows[key], key))))
        figures = [[_title(name), *(_figure(name, rows.get(key)) for key in keys)] for name, rows in maps]
        texts = [list(column) for column in zip(self._headings, *map(_place, keys))]
        widths = [max(map(len, column)) for column in figures + texts]
        lines = [""]
        for cells in zip(*figures, *texts):
            shown = [cell.rjust(width) for cell, width in zip(cells[: len(figures)], widths)]
            shown += [cell.ljust(width) for cell, width in zip(cells[len(figures) :], widths[len(figures) :])]
            lines.append("  ".join(shown).rstrip())
        if any(len(rows) == MOST < len(keys) for _, rows in maps):
            lines += ["", f"-: not among the {MOST} largest of its column"]
        return lines


def _title(name: str) -> str:
    return (name[: -len("_ns")] if name.endswith("_ns") else name).replace("_", " ").upper()


def _figure(name: str, value: Any) -> str:
    if value is None:
        return "-"
    return duration(value) if name.endswith("_ns") else f"{value:,}"


def _place(key: str) -> Tuple[str, str]:
    """ "Depot.stamp, hotfuncs.py, 59": the last two are a file and a line."""
    match = re.fullmatch(r"(?:(.*), )?(.*), (\d+)", key)
    if not match or match[2].isdigit():
        return clean(key), ""
    return clean(match[1] or "-"), clean(f"{match[2]}:{match[3]}")
