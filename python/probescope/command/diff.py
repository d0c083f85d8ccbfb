"""The functions whose figures differ between two recordings."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Any, Dict, List

from probescope.command import cells, tables
from probescope.command.convert import by_of, choose_own
from probescope.command.definitions import LISTS, SCHEMA
from probescope.command.errors import Usage
from probescope.command.result import clock, decimals
from probescope.command.text import clean, size, to_json
from probescope.profile import page, pprof_reader
from probescope.profile.destination import Destination, Formats
from probescope.profile.diff import Diff, Row
from probescope.profile.recording import Recording
from probescope.profile.tables import notes, processes_of

OWN = ("by", "globs")
OUTSIDE = "(outside of the application)"
PER = {"time": "in each second of a process", "cpu": "as shares of the whole"}


def run(options: Any) -> int:
    if options.output and options.json:
        raise Usage("--json is for the tables, and -o writes a file", "probescope diff without -o")
    page_alone: Formats = {".html": page.write}
    destination = Destination(options.output, options.force, page_alone) if options.output else None
    recordings = [pprof_reader.read(path) for path in (options.before, options.after)]
    for recording in recordings:
        choose_own(recording, options.own)
    diff = Diff(recordings[0], recordings[1], by_of(recordings, options.by), options.per, options.min / 100)
    warnings = _warnings(diff, recordings)
    for text in warnings:
        print(f"probescope: {text}", file=sys.stderr)
    if destination:
        before, after = recordings
        written = destination.save(lambda file: page.compare(before, after, file, _of_the_page(diff)))
        print(f"{destination.path}, {size(written)}")
        return 0
    if options.json:
        print(to_json(_object(diff, recordings, warnings)))
    else:
        print("\n".join(_lines(diff, recordings)))
    return 0


def _warnings(diff: Diff, recordings: List[Recording]) -> List[str]:
    """Returns what has to be known of the comparison before its figures are believed."""
    found = list(diff.too_short)
    for recording, which in zip(recordings, ("before", "after")):
        found += [f"{which}: {text}" for text in notes(recording)]
    before, after = (recording.metadata.get("own") or {} for recording in recordings)
    if diff.by == "own" and [before.get(key) for key in OWN] != [after.get(key) for key in OWN]:
        found.append(
            f"what counts as the application's differs: {_own(before)} before, {_own(after)} after; "
            "--own chooses the same for both"
        )
    return found


def _own(told: Dict[str, Any]) -> str:
    return clean(" ".join([told["by"], *told["globs"]])) if told else "not known"


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


def _object(diff: Diff, recordings: List[Recording], warnings: List[str]) -> Dict[str, Any]:
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
        "warnings": warnings,
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


def _none(diff: Diff, kind: str) -> str:
    """A test that finds no change does not prove that there is none."""
    if diff.too_short:
        return "changes cannot be told from chance"
    largest = next(iter(diff.rows(kind)), None)
    if not largest or not diff.enough(largest.share):
        return "no function changed by more than chance"
    row = _fields(diff, kind, largest)
    before, after = (cells.normalised(row, side) for side in ("before", "after"))
    return (
        "no change can be told from chance; the largest difference is that of "
        f"{clean(row['function'] or OUTSIDE)}: {before} before, {after} after. Record for longer"
    )


def _table(diff: Diff, kind: str) -> List[str]:
    rows = [_fields(diff, kind, row) for row in diff.rows(kind) if row.changed]
    for row in rows:
        row["function"] = row["function"] or OUTSIDE
    before, after = (
        cells.normalised({"whole": whole, "unit": _unit(diff, kind)}, "whole") for whole in diff.wholes(kind)
    )
    head = f"{clean(kind)} by {diff.by}, {PER[diff.per]}: {before} before, {after} after"
    if not rows:
        return [head, f"  {_none(diff, kind)}"]
    return [head, *tables.listed(LISTS["diff"]["rows"], rows)]
