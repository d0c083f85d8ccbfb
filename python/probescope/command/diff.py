"""The functions whose figures differ between two recordings."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Any, Dict, List

from probescope.command import cells, tables
from probescope.command.convert import by_of, choose_own
from probescope.command.definitions import LISTS, SCHEMA
from probescope.command.result import clock, decimals
from probescope.command.text import size, to_json
from probescope.profile import page, pprof_reader
from probescope.profile.destination import Destination, Formats
from probescope.profile.diff import Diff, Row
from probescope.profile.recording import Recording
from probescope.profile.tables import processes_of

PER = {
    "time": "in each second of a process",
    "request": "for each request",
    "cpu": "as shares of the whole",
}
TOO_SHORT = "the recordings have too few spans of time to tell a change from chance: record 5 s at least"


def run(options: Any) -> int:
    page_alone: Formats = {".html": page.write}
    destination = Destination(options.output, options.force, page_alone) if options.output else None
    recordings = [pprof_reader.read(path) for path in (options.before, options.after)]
    for recording in recordings:
        choose_own(recording, options.own)
    diff = Diff(recordings[0], recordings[1], by_of(recordings, options.by), options.per, options.min / 100)
    if diff.too_short:
        print(f"probescope: {TOO_SHORT}", file=sys.stderr)
    if destination:
        before, after = recordings
        written = destination.save(lambda file: page.compare(before, after, file, _of_the_page(diff)))
        print(f"{destination.path}, {size(written)}")
        return 0
    print(to_json(_object(diff, recordings)) if options.json else "\n".join(_lines(diff, recordings)))
    return 0


def _of_the_page(diff: Diff) -> Dict[str, Any]:
    """Returns what the page shows of the comparison."""
    kinds = {
        kind: {
            "factors": list(diff.factors(kind)),
            "changed": [[row.name, row.path] for row in diff.rows(kind) if row.changed],
        }
        for kind in diff.kinds
    }
    return {"by": diff.by, "per": diff.per, "kinds": kinds}


def _object(diff: Diff, recordings: List[Recording]) -> Dict[str, Any]:
    before, after = map(_side, recordings)
    return {
        "schema": SCHEMA,
        "command": "diff",
        "pids": list(dict.fromkeys([*before["pids"], *after["pids"]])),
        "before": before,
        "after": after,
        "by": diff.by,
        "per": diff.per,
        "kinds": [_kind(diff, kind) for kind in diff.kinds],
        "warnings": [TOO_SHORT] if diff.too_short else [],
    }


def _side(recording: Recording) -> Dict[str, Any]:
    told = recording.metadata
    pids = [process["pid"] for process in told.get("processes", [])]
    return {"pids": pids, **{key: told.get(key) for key in ("begin", "end", "seconds")}}


def _kind(diff: Diff, kind: str) -> Dict[str, Any]:
    before, after = map(_rounded, diff.wholes(kind))
    rows = [_fields(diff, kind, row) for row in diff.rows(kind)]
    return {"kind": kind, "unit": diff.unit(kind), "before": before, "after": after, "rows": rows}


def _rounded(number: float) -> float:
    found = decimals(abs(number), 6) or 0.0
    return -found if number < 0 else found


def _fields(diff: Diff, kind: str, row: Row) -> Dict[str, Any]:
    return {
        "function": row.name,
        "file": row.path or None,
        "line": row.defined or None,
        "outside": row.name is None,
        "before": _rounded(row.before),
        "after": _rounded(row.after),
        "difference": _rounded(row.difference),
        "share": None if row.share is None else _rounded(row.share),
        "changed": row.changed,
        "unit": _unit(diff, kind),
    }


def _unit(diff: Diff, kind: str) -> str:
    return "share" if diff.per == "cpu" else diff.unit(kind)


def _lines(diff: Diff, recordings: List[Recording]) -> List[str]:
    found = [_head(one, which) for one, which in zip(recordings, ("before", "after"))]
    for kind in diff.kinds:
        found += ["", *_table(diff, kind)]
    return found


def _head(recording: Recording, which: str) -> str:
    told = recording.metadata
    if not told:
        return f"{which}: a file of another tool"
    begin = clock(datetime.fromisoformat(told["begin"]))
    return f"{which}: {processes_of(recording)}, {told['seconds']:.1f} s, from {begin}"


def _table(diff: Diff, kind: str) -> List[str]:
    rows = [_fields(diff, kind, row) for row in diff.rows(kind) if row.changed]
    for row in rows:
        row["function"] = row["function"] or "(outside of the application)"
    before, after = (
        cells.normalised({"whole": whole, "unit": _unit(diff, kind)}, "whole") for whole in diff.wholes(kind)
    )
    head = f"{kind} by {diff.by}, {PER[diff.per]}: {before} before, {after} after"
    if not rows:
        return [head, "  no function changed by more than chance"]
    return [head, *tables.listed(LISTS["diff"]["rows"], rows)]
