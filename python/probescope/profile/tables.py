"""The tables of a recording, and its JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Dict, List

from probescope.command import cells, lost, tables
from probescope.command.definitions import LISTS
from probescope.command.result import clock
from probescope.command.text import clean, count, share
from probescope.profile.recording import Recording
from probescope.profile.summary import Summary

# Functions that the line about what is outside names.
OUTSIDE = 3
# The losses of a recording. A later version may have others.
LOST = ("events", "rows", "samples", "paths")
# The fields of a process, which may have more in the metadata of a later version.
PROCESS = (
    "pid",
    "runtime",
    "version",
    "begin",
    "end",
    "seconds",
    "cpu_share",
    "looking_share",
    "left_out",
)


class Tables:
    def __init__(self, recording: Recording, by: str, top: int) -> None:
        """by: one of summary.BY. top: rows of each table; 0 for all."""
        self._recording = recording
        self._by = by
        self._top = top

    def lines(self) -> List[str]:
        found = self._head()
        for kind in range(len(self._recording.kinds)):
            found += ["", *self._table(kind)]
        return found

    def fields(self) -> Dict[str, Any]:
        """Returns the fields of the command's JSON."""
        told = self._recording.metadata
        processes = told.get("processes", [])
        return {
            "pids": [process["pid"] for process in processes],
            "begin": told.get("begin"),
            "end": told.get("end"),
            "seconds": told.get("seconds"),
            "bucket_ns": self._recording.bucket_ns,
            "processes": [{key: one[key] for key in PROCESS if key in one} for one in processes],
            "by": self._by,
            "own": told.get("own"),
            "kinds": [self._kind(kind) for kind in range(len(self._recording.kinds))],
            "lost": told.get("lost"),
            "truncated": told.get("truncated", []),
            "not_covered": told.get("not_covered", []),
        }

    def _kind(self, index: int) -> Dict[str, Any]:
        kind, summary = self._recording.kinds[index], Summary(self._recording, index, self._by)
        rows = [{key: row[key] for key in row if key != "unit"} for row in summary.shown()]
        return {
            "kind": kind.name,
            "unit": kind.unit,
            "count": summary.times,
            "weight": summary.weight,
            "looked": summary.looked,
            "rows": rows,
        }

    def _head(self) -> List[str]:
        told = self._recording.metadata
        if not told:
            return ["a file of another tool: without processes, times and losses"]
        looked = told["looking_share"]
        looking = "" if looked is None else f"; looking took {share(looked)} of the CPU time"
        which = "the" if len(told["processes"]) == 1 else "a"
        ended = ("; interrupted" if told.get("interrupted") else "") + (
            f"; {which} process ended" if told.get("ended") else ""
        )
        begin, end = (clock(datetime.fromisoformat(told[key])) for key in ("begin", "end"))
        return [
            f"recording of {processes_of(self._recording)}, {told['seconds']:.1f} s{ended}",
            f"from {begin} to {end}{looking}",
            *notes(self._recording),
        ]

    def _table(self, kind: int) -> List[str]:
        summary = Summary(self._recording, kind, self._by)
        rows = summary.shown()
        shown = [row for row in rows if not row["outside"]]
        if self._by == "own":
            shown = [row for row in shown if row["count"] or row["weight"]]
        cut = shown[: self._top] if self._top else shown
        more = len(shown) - len(cut)
        return [
            self._title(kind, summary),
            *(tables.listed(LISTS["convert"][self._by], cut) if cut else []),
            *(_outside(row) for row in rows if row["outside"]),
            *([f"{count(more)} more rows; --top 0 shows all"] if more else []),
        ]

    def _title(self, index: int, summary: Summary) -> str:
        kind = self._recording.kinds[index]
        weight = cells.weight({"weight": summary.weight, "unit": kind.unit}, "weight")
        times = [f"{count(summary.times)} {clean(kind.counts[0])}"] if kind.counts else []
        return f"{clean(kind.name)} by {self._by}: {', '.join([*times, weight])}"


def notes(recording: Recording) -> List[str]:
    """Returns what has to be known of a recording before its figures are believed: how it was shortened,
    what was lost, and its warnings.
    """
    told = recording.metadata
    losses = {what: number for what, number in told.get("lost", {}).items() if number}
    found = [
        *(f"shortened: {text}" for text in told.get("truncated", [])),
        *(
            lost.WARNINGS[what].format(number=number) if what in LOST else f"{number} lost: {what}"
            for what, number in losses.items()
        ),
        *told.get("warnings", []),
        *told.get("not_covered", []),
    ]
    return [clean(text) for text in dict.fromkeys(found)]


def processes_of(recording: Recording) -> str:
    """ "process 7", or "2 processes (7, 8)"."""
    pids = [str(process["pid"]) for process in recording.metadata.get("processes", [])]
    more = ", ..." if len(pids) > 8 else ""
    return f"process {pids[0]}" if len(pids) == 1 else f"{len(pids)} processes ({', '.join(pids[:8])}{more})"


def _outside(row: Dict[str, Any]) -> str:
    parts = [f"{clean(one['function'])} {share(one['share'])}" for one in row["called"][:OUTSIDE]]
    return f"outside of the application: {share(row['self_share'])} ({', '.join(parts)})"
