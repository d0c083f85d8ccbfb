"""What a program prints of its maps at its end, as tables."""

from __future__ import annotations

import re
from typing import Dict, List, Tuple

from probescope.command.text import clean

ROW = re.compile(r"@(\w+)\[(\d+)(?:, (.*))?\]: (-?\d+)")
NOISE = re.compile(r"Attach(ing|ed) \d+ probe|\s*$")


class Tables:
    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._maps: Dict[str, List[Tuple[int, str]]] = {}
        self._single: Dict[str, int] = {}

    def add(self, line: str) -> bool:
        """True when it takes the line: a row of a map, or nothing that anybody wants to see."""
        match = ROW.fullmatch(line)
        if not match:
            return bool(NOISE.match(line))
        name, pid, key, value = match.groups()
        # One process is traced; an older bpftrace in a container numbers it in its own way.
        if key is None:
            self._single[name] = self._single.get(name, 0) + int(value)
        else:
            self._maps.setdefault(name, []).append((int(value), key))
        return True

    def lines(self) -> List[str]:
        """The largest first, which a program prints last; a figure in ns as ms."""
        lines = []
        for name, rows in self._maps.items():
            lines.append(f"\n{_title(name):>16}")
            for value, key in sorted(rows, key=lambda row: -row[0]):
                lines.append(f"{_figure(name, value):>16}  {_place(key)}")
        if "wall_ns" in self._single:
            wall, cpu = self._single["wall_ns"], self._single.get("cpu_ns")
            share = f", {100 * cpu / wall:.1f} % CPU" if cpu is not None and wall else ""
            lines.append(f"\nprocess {self._pid}, {wall / 1e9:.1f} s{share}")
        for name, value in self._single.items():
            if name not in ("wall_ns", "cpu_ns") and value:
                lines.append(f"{_title(name).lower()}: {value:,}")
        return lines


def _title(name: str) -> str:
    return (name[: -len("_ns")] if name.endswith("_ns") else name).replace("_", " ").upper()


def _figure(name: str, value: int) -> str:
    return f"{value / 1e6:,.1f} ms" if name.endswith("_ns") else f"{value:,}"


def _place(key: str) -> str:
    """ "Depot.stamp, hotfuncs.py, 59": the last two are a file and a line."""
    match = re.fullmatch(r"(?:(.*), )?(.*), (\d+)", key)
    if not match or match[2].isdigit():
        return clean(key)
    return clean(f"{match[1] + '  ' if match[1] else ''}{match[2]}:{match[3]}")
