"""Rows for people: aligned columns without rules, as the gem's command prints them."""

from __future__ import annotations

import unicodedata
from typing import Any, Dict, List, Tuple

from probescope.command import cells
from probescope.command.answers import Column
from probescope.command.reports import Report
from probescope.command.result import Result, clock
from probescope.command.text import clean, duration, share

# Rows shown, unless --top says otherwise.
TOP = 20
# With requests told apart.
REQUEST = Column("REQUEST", "request", None, False)
LOST = {
    "events": "{} events were lost between the kernel and bpftrace",
    "rows": "{} events had no row of their own: the process's memory for names is full (see (overflow))",
    "map_full": "{} rows were dropped: bpftrace's maps are full; give them room: PROBESCOPE_MAP_KEYS={}",
    "samples": "{} samples could not be taken",
    "details": "{} exception details were over the limit of 10 a second",
}


def head(command: str, result: Result) -> List[str]:
    """What the figures are of."""
    cpu = share(result.cpu_ns / result.wall_ns)
    rate = f", {result.sample_rate:.0f} samples a second of it" if result.sample_rate and result.has_samples else ""
    looking = f", {share(result.looking_share)} of it for looking" if result.looking_share is not None else ""
    begin, end = map(clock, result.interval)
    waited = "" if result.waited_ns is None else f"; waited {duration(result.waited_ns)} for the hooks"
    return [
        f"{command} of process {result.pid}, {result.seconds:.1f} s, {cpu} CPU{rate}{looking}",
        f"from {begin} to {end}{waited}",
    ]


def table(report: Report, rows: List[Dict[str, Any]], top: int) -> List[str]:
    """top: so many rows, 0 for all."""
    if not rows:
        return [f"  {line}" for line in (report.nothing(), *report.not_covered()) if line]
    shown = rows[:top] if top else rows
    columns = [*([REQUEST] if report.by_request else []), *report.definition.columns]
    told = [(column, [cells.of(column, row) for row in shown]) for column in columns]
    lines = ["", *_aligned([one for one in told if not one[0].optional or any(cell != "-" for cell in one[1])])]
    if len(rows) > len(shown):
        lines += ["", f"{len(rows) - len(shown):,} more rows; --top 0 shows all"]
    below = [line for line in (report.below(shown), *report.not_covered()) if line]
    return [*lines, "", *below] if below else lines


def lost(result: Result, keys: int) -> List[str]:
    return [LOST[what].format(number, keys * 4) for what, number in result.lost().items() if number]


def _aligned(columns: List[Tuple[Column, List[str]]]) -> List[str]:
    padded = []
    for column, told in columns:
        texts = [column.heading, *map(clean, told)]
        room = max(map(_width, texts))
        spaces = [" " * (room - _width(one)) for one in texts]
        padded.append([texts[0] + spaces[0]])
        right = column.kind in cells.RIGHT
        padded[-1] += [space + one if right else one + space for one, space in zip(texts[1:], spaces[1:])]
    return ["  ".join(line).rstrip() for line in zip(*padded)]


def _width(text: str) -> int:
    """Columns of a terminal."""
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text
    )
