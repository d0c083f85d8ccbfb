"""The cells of tables. Each kind of column in docs/schema/schemas.yml has a function here that
takes a row and the column's key. A value that is not known is "-".
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Callable, Dict, List, Optional

from probescope.command import text as figure
from probescope.command.definitions import Column
from probescope.command.display import DEEPEST, DEEPEST_LIVE
from probescope.command.result import clock as of_day
from probescope.command.result import ratio

Row = Dict[str, Any]
# Kinds of figures. Their columns are aligned to the right.
RIGHT = frozenset(
    {
        *("share", "time", "time_above_zero", "count", "signed", "decimal", "bytes", "number"),
        *("weight", "change", "normalised"),
    }
)
# Kinds by whose figure rows are sorted.
FIGURES = RIGHT | {"errors"}
NO_FUNCTION = "(no traced function)"
# Reasons of offcpu whose words are not their names.
REASONS = {
    "vm_lock": "VM lock",
    "timer_lock_or_child": "timer, lock or child",
    "page_fault": "page fault",
    "file_lock": "file lock",
    "ready": "any of several files",
}
TRACE_ID = re.compile(r"[0-9a-fA-F]{2}-([0-9a-fA-F]{32})-")


def of(column: Column, row: Row) -> str:
    """The text of a cell."""
    return KINDS[column.kind](row, column.key or "")


def ordered(rows: List[Row], column: Column) -> List[Row]:
    """Sorts rows by a column: figures from the largest to the smallest, texts alphabetically. Rows
    without a value come last.
    """
    known = [row for row in rows if of(column, row) != "-"]
    unknown = [row for row in rows if of(column, row) == "-"]
    if column.kind in FIGURES:
        return [*sorted(known, key=lambda row: -float(row[column.key or ""])), *unknown]
    return [*sorted(known, key=lambda row: of(column, row)), *unknown]


def text(row: Row, key: str) -> str:
    return str(row[key]) if row.get(key) not in (None, "") else "-"


def place(row: Row, _key: str) -> str:
    """ "app.py:12" """
    return ":".join(str(part) for part in (row["file"], row["line"]) if part) if row["file"] else "-"


def place_of_wait(row: Row, key: str) -> str:
    """ "app.py:12", and whether only the function's definition is there."""
    return place(row, key) + (" (definition)" if row["line_is"] == "definition" else "")


def place_of_definition(row: Row, key: str) -> str:
    """Rows of single lines have a line_is, and others have not."""
    return "-" if "line_is" in row else place(row, key)


def place_of_line(row: Row, key: str) -> str:
    return place_of_wait(row, key) if "line_is" in row else "-"


def clock(row: Row, key: str) -> str:
    """The local time of day."""
    return of_day(datetime.fromisoformat(row[key].replace("Z", "+00:00"))) if row[key] else "-"


def request(row: Row, _key: str) -> str:
    """The row's request: method and route."""
    return _joined(" ", row["method"], row["route"])


def largest_builtin(row: Row, key: str) -> str:
    largest = next(iter(row[key]), None)
    return f"{figure.share(largest['share'])} {text(largest, 'function')}" if largest else "-"


def largest_called(row: Row, key: str) -> str:
    """ "12.5% Zlib.crc32" """
    return largest_builtin(row, key) if row.get(key) else "-"


def weight(row: Row, key: str) -> str:
    """A figure in the row's unit."""
    told = {"nanoseconds": figure.duration, "bytes": figure.size}
    return told.get(row["unit"], figure.count)(row[key])


def normalised(row: Row, key: str) -> str:
    """A figure in the row's unit that need not be whole."""
    if row["unit"] == "share":
        return figure.share(row[key])
    return weight({**row, key: figure.half_up(row[key])}, key)


def change(row: Row, key: str) -> str:
    """ "+12.3 %" """
    if row[key] is None:
        return "-"
    return f"{'-' if row[key] < 0 else '+'}{figure.share(abs(row[key]))}"


def line_at(row: Row, key: str) -> str:
    """ "app.py:12" """
    return place(row[key], "") if row[key] else "-"


def errors(row: Row, key: str) -> str:
    """ "7 ENOENT, 2 EACCES". key: how many failed, also those whose error is not known."""
    named = [f"{figure.count(number)} {name}" for name, number in row["errors"].items()]
    rest = row[key] - sum(row["errors"].values())
    return _joined(", ", *named, f"{figure.count(rest)} unknown" if rest > 0 else None)


def largest_holder(row: Row, key: str) -> str:
    """The place of the thread that ended most of the blocked time."""
    largest = next(iter(row[key]), None)
    if not largest:
        return "-"
    return _joined(" at ", largest["function"], place_of_wait(largest, "") if largest["file"] else None)


def largest_reason(row: Row, key: str) -> str:
    """ "lock (futex)", with the share of the function's time if there are others."""
    largest = next(iter(row[key]), None)
    if not largest:
        return "-"
    whole, part = (one["blocked_ns"] + one["queued_ns"] for one in (row, largest))
    told = [REASONS.get(largest["reason"], largest["reason"])]
    told += [f"({largest['call']})"] if largest["call"] else []
    told += [figure.share(ratio(part, whole))] if len(row[key]) > 1 else []
    return " ".join(told)


def largest_waker(row: Row, key: str) -> str:
    """The function that the waker was in, and the share of the time blocked that it ended."""
    largest = next(iter(row[key]), None)
    if not largest:
        return "-"
    where = place(largest, "") if largest["file"] else None
    part = figure.share(ratio(largest["blocked_ns"], row["blocked_ns"]))
    return f"{_joined(' at ', largest['function'] or NO_FUNCTION, where)} {part}"


def traced_function(row: Row, key: str) -> str:
    """row["outside"]: whether no traced function was open. Otherwise an unknown name is unknown."""
    return NO_FUNCTION if row["outside"] else text(row, key)


def callers(row: Row, key: str) -> str:
    """ "Shop.pay, Shop.serve": the nearest first."""
    return _joined(", ", *(text(one, "function") for one in row.get(key) or ()))


def raised_exception(row: Row, key: str) -> str:
    return _joined(" at ", row[key], row["raised_at"])


def counted_function(row: Row, key: str) -> str:
    """Adds the time at which counting the function stopped, if it did."""
    return text(row, key) + (f" (until {clock(row, 'counted_until')})" if row["counted_until"] else "")


def status(row: Row, key: str) -> str:
    """The status code when the row has only one, else the class of its status codes."""
    only: List[str] = list(row["statuses"])
    return only[0] if len(only) == 1 and int(only[0]) > 0 else text(row, key)


def nested_call(row: Row, key: str) -> str:
    """The name, indented below its caller."""
    raised = "  (raised)" if row["outcome"] == "raised" else ""
    return f"{'  ' * min(row['depth'], DEEPEST)}{text(row, key)}{raised}"


def live_call(row: Row, key: str) -> str:
    """The name, indented below its caller: with = where it ends, and with its place otherwise."""
    leaves = row["event"] == "leave"
    outcome = row.get("outcome") if row.get("outcome") != "returned" else None
    where = place(row, "") if not leaves and row["file"] else None
    indent = "  " * min(row["depth"], DEEPEST_LIVE)
    return "  ".join(filter(None, [f"{indent}{'= ' if leaves else ''}{row[key]}", outcome, where]))


def lost_rows_and_samples(row: Row, key: str) -> str:
    return figure.count(row[key]["rows"] + row[key]["samples"])


def trace_id(row: Row, key: str) -> str:
    """The trace id of a traceparent. A traceparent may have another format than W3C's."""
    match = TRACE_ID.match(row[key] or "")
    return str(match[1]) if match else text(row, key)


def _figure(told: Callable[[Any], str]) -> Callable[[Row, str], str]:
    return lambda row, key: told(row[key])


def _joined(by: str, *parts: Optional[str]) -> str:
    return by.join(filter(None, parts)) or "-"


KINDS: Dict[str, Callable[[Row, str], str]] = {
    "share": _figure(figure.share),
    "time": _figure(figure.duration),
    # An event that has no time has no text: a call that begins.
    "time_at_end": lambda row, key: figure.duration(row[key]) if key in row else "",
    "time_above_zero": _figure(lambda ns: figure.duration(ns or None)),
    "count": _figure(figure.count),
    "signed": lambda row, key: figure.count(row.get(key)),
    "decimal": _figure(figure.decimal),
    "bytes": _figure(figure.size),
    "number": text,
    "text": text,
    "place": place,
    "place_of_wait": place_of_wait,
    "place_of_definition": place_of_definition,
    "place_of_line": place_of_line,
    "clock": clock,
    "request": request,
    "largest_builtin": largest_builtin,
    "weight": weight,
    "normalised": normalised,
    "change": change,
    "line_at": line_at,
    "largest_called": largest_called,
    "errors": errors,
    "largest_holder": largest_holder,
    "largest_reason": largest_reason,
    "largest_waker": largest_waker,
    "traced_function": traced_function,
    "callers": callers,
    "raised_exception": raised_exception,
    "counted_function": counted_function,
    "status": status,
    "nested_call": nested_call,
    "live_call": live_call,
    "lost_rows_and_samples": lost_rows_and_samples,
    "words": lambda row, key: " ".join([row[key]] if isinstance(row[key], str) else row[key]),
    "yes_or_no": lambda row, key: {True: "yes", False: "no"}.get(row[key], "?"),
    "path_or_none": lambda row, key: str(row[key] or "none"),
    "library": lambda row, key: f"{row[key]}{' gone' if row['deleted'] else ''}",
    "trace_id": trace_id,
}
