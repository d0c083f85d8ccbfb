"""Tables for people: aligned columns without rules, in the layout of the gem's command."""

from __future__ import annotations

import sys
from typing import Any, Dict, List, Tuple

from probescope.command import cells
from probescope.command.definitions import Column
from probescope.command.lost import WARNINGS
from probescope.command.reports import Report
from probescope.command.result import Result, clock
from probescope.command.terminal import Terminal, heat, narrowed, shortened, width
from probescope.command.text import clean, duration, share

Row = Dict[str, Any]

# The additional column of programs that group by request.
REQUEST = Column("REQUEST", "request", None, False)


def head(command: str, result: Result) -> List[str]:
    """The two lines above a table: process, interval and overhead."""
    cpu = share(result.cpu_ns / result.wall_ns)
    rate = (
        f", {result.sample_rate:.0f} samples a second of it"
        if result.sample_rate and result.has_samples
        else ""
    )
    looking = f", {share(result.looking_share)} of it for looking" if result.looking_share is not None else ""
    begin, end = map(clock, result.interval)
    waited = "" if result.waited_ns is None else f"; waited {duration(result.waited_ns)} for the hooks"
    return [
        f"{command} of process {result.pid}, {result.seconds:.1f} s, {cpu} CPU{rate}{looking}",
        f"from {begin} to {end}{waited}",
    ]


def above(report: Report) -> List[str]:
    """The report's own lines above the table."""
    return [line for line in (report.above(),) if line]


def table(
    report: Report, rows: List[Row], top: int, terminal: Terminal, below_min: int = 0, least: float = 0
) -> List[str]:
    """top: number of rows to show, 0 for all. below_min: number of rows below `least` percent."""
    if not rows:
        nothing = f"every row ({below_min}) is below --min" if below_min else report.nothing()
        return [f"  {line}" for line in (nothing, *report.not_covered()) if line]
    shown = rows[:top] if top else rows
    columns = [*([REQUEST] if report.by_request else []), *report.columns()]
    told = {column: [clean(cells.of(column, row)) for row in shown] for column in columns}
    told = {
        column: texts
        for column, texts in told.items()
        if not column.optional or any(text != "-" for text in texts)
    }
    lines = ["", *_aligned(_fitting(told, report, terminal) if terminal.width else told, shown, terminal)]
    left_out = [f"{len(rows) - len(shown):,} more rows; --top 0 shows all"] if len(rows) > len(shown) else []
    left_out += [f"{below_min:,} rows below --min {least:g}"] if below_min else []
    lines += ["", "; ".join(left_out)] if left_out else []
    below = [line for line in (report.below(shown), *report.not_covered()) if line]
    return [*lines, "", *below] if below else lines


def listed(columns: Tuple[Column, ...], rows: List[Row]) -> List[str]:
    """Returns the lines of what a command lists. columns: of LISTS."""
    told = {column: [clean(cells.of(column, row)) for row in rows] for column in columns}
    return _aligned(told, rows, Terminal(sys.stdout, "never"))


def lost(result: Result, keys: int) -> List[str]:
    """Returns a warning for each kind of loss. keys: rows that bpftrace had room for."""
    found = {what: number for what, number in result.lost().items() if number and what in WARNINGS}
    return [WARNINGS[what].format(number=number, keys=keys * 4) for what, number in found.items()]


def _fitting(told: Dict[Column, List[str]], report: Report, terminal: Terminal) -> Dict[Column, List[str]]:
    """Fits the columns to the terminal: paths become relative to the application's folder, and long
    names are cut in the middle.
    """
    root = f"{report.result.folder}/" if report.result.folder not in (None, "/") else None
    may = [column.kind not in cells.RIGHT for column in told]
    texts = [
        [one[len(root) :] if root and narrower and one.startswith(root) else one for one in column]
        for column, narrower in zip(told.values(), may)
    ]
    widths = [
        max(width(one) for one in (column.heading, *column_texts))
        for column, column_texts in zip(told, texts)
    ]
    widths = narrowed(widths, may, (terminal.width or 0) - 2 * (len(widths) - 1))
    return {
        column: [shortened(one, room) for one in found] for column, found, room in zip(told, texts, widths)
    }


def _aligned(told: Dict[Column, List[str]], rows: List[Row], terminal: Terminal) -> List[str]:
    padded = []
    for column, texts in told.items():
        room = max(map(width, (column.heading, *texts)))
        spaces = [" " * (room - width(one)) for one in texts]
        right = column.kind in cells.RIGHT
        column_cells = [space + one if right else one + space for one, space in zip(texts, spaces)]
        if column.kind == "share" and column.key:
            shares = [row[column.key] for row in rows]
            column_cells = [terminal.paint(one, heat(part)) for one, part in zip(column_cells, shares)]
        padded.append([column.heading + " " * (room - width(column.heading)), *column_cells])
    return ["  ".join(line).rstrip() for line in zip(*padded)]
