"""The cells of tables: a function of a row and a column's key for each kind of column that
docs/schema/schemas.yml names. What is not known is "-".
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Callable, Dict, List, Optional

from probescope.command import text as figure
from probescope.command.answers import Column
from probescope.command.result import clock as of_day

Row = Dict[str, Any]
# Kinds of figures, which are aligned to the right.
RIGHT = frozenset({"share", "time", "time_above_zero", "count", "decimal", "bytes", "number"})
# Calls are indented up to here.
DEEPEST = 24
TRACE_ID = re.compile(r"[0-9a-fA-F]{2}-([0-9a-fA-F]{32})-")


def of(column: Column, row: Row) -> str:
    """The text of a column in a row."""
    return KINDS[column.kind](row, column.key or "")


def ordered(rows: List[Row], column: Column) -> List[Row]:
    """By a column: figures from the largest to the smallest, texts in their order; what is not
    known comes last.
    """
    known = [row for row in rows if of(column, row) != "-"]
    unknown = [row for row in rows if of(column, row) == "-"]
    if column.kind in RIGHT:
        return [*sorted(known, key=lambda row: -float(row[column.key or ""])), *unknown]
    return [*sorted(known, key=lambda row: of(column, row)), *unknown]


def text(row: Row, key: str) -> str:
    return str(row[key]) if row[key] not in (None, "") else "-"


def place(row: Row, _key: str) -> str:
    """ "app.py:12" """
    return ":".join(str(part) for part in (row["file"], row["line"]) if part) if row["file"] else "-"


def clock(row: Row, key: str) -> str:
    """Time of day on this machine."""
    return of_day(datetime.fromisoformat(row[key].replace("Z", "+00:00"))) if row[key] else "-"


def request(row: Row, _key: str) -> str:
    """The request that a row is of."""
    return _joined(" ", row["method"], row["route"])


def largest_builtin(row: Row, key: str) -> str:
    largest = next(iter(row[key]), None)
    return f"{figure.share(largest['share'])} {text(largest, 'function')}" if largest else "-"


def raised_exception(row: Row, key: str) -> str:
    return _joined(" at ", row[key], row["raised_at"])


def counted_function(row: Row, key: str) -> str:
    """A function that is not counted any more says since when."""
    return text(row, key) + (f" (until {clock(row, 'counted_until')})" if row["counted_until"] else "")


def status(row: Row, key: str) -> str:
    """A row's only status as it is, else their class."""
    only: List[str] = list(row["statuses"])
    return only[0] if len(only) == 1 and int(only[0]) > 0 else text(row, key)


def nested_call(row: Row, key: str) -> str:
    """Below the call that made it."""
    raised = "  (raised)" if row["outcome"] == "raised" else ""
    return f"{'  ' * min(row['depth'], DEEPEST)}{text(row, key)}{raised}"


def trace_id(row: Row, key: str) -> str:
    """Of a traceparent, which may be of another format than W3C's."""
    match = TRACE_ID.match(row[key] or "")
    return str(match[1]) if match else text(row, key)


def _figure(told: Callable[[Any], str]) -> Callable[[Row, str], str]:
    return lambda row, key: told(row[key])


def _joined(by: str, *parts: Optional[str]) -> str:
    return by.join(filter(None, parts)) or "-"


KINDS: Dict[str, Callable[[Row, str], str]] = {
    "share": _figure(figure.share),
    "time": _figure(figure.duration),
    "time_above_zero": _figure(lambda ns: figure.duration(ns or None)),
    "count": _figure(figure.count),
    "decimal": _figure(figure.decimal),
    "bytes": _figure(figure.size),
    "number": text,
    "text": text,
    "place": place,
    "clock": clock,
    "request": request,
    "largest_builtin": largest_builtin,
    "raised_exception": raised_exception,
    "counted_function": counted_function,
    "status": status,
    "nested_call": nested_call,
    "trace_id": trace_id,
}
