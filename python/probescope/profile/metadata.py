"""The metadata of a recording: docs/schema/recording.json.

A file is foreign data, so the fields that are read have to be of the types that the schema has. Later
versions may add fields.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Callable, Dict, Optional

TIME = re.compile(r"2\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)
# Larger numbers are in no recording, and not every reader has them.
MOST = (1 << 63) - 1


def wrong(metadata: Dict[str, Any]) -> Optional[str]:
    """Returns the first field with a wrong value."""
    return next((name for name, fits in FIELDS.items() if not fits(metadata.get(name))), None)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= MOST


def _whole(value: Any) -> bool:
    return isinstance(value, int) and _number(value)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _time(value: Any) -> bool:
    if not isinstance(value, str) or not TIME.fullmatch(value):
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:  # the 31st of February
        return False
    return True


def _type(value: Any) -> bool:
    return _texts(value) and len(value) == 2


def _kinds(value: Any) -> bool:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        return False
    names = [one.get("name") for one in value]
    return (
        all(isinstance(name, str) for name in names)
        and len(set(names)) == len(names)
        and all(
            _type(one.get("counts"))
            and _type(one.get("weighs"))
            and (one.get("looked") is None or _type(one["looked"]))
            for one in value
        )
    )


def _process(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    pid: Any = value.get("pid")
    threads = value.get("threads")
    return (
        _whole(pid)
        and pid > 0
        and isinstance(threads, dict)
        and _texts(list(threads.values()))
        and (value.get("wall_ns") is None or _whole(value["wall_ns"]))
    )


def _own(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("by"), str) and _texts(value.get("globs"))


# {field: a test of its value}
FIELDS: Dict[str, Callable[[Any], bool]] = {
    "kinds": _kinds,
    "begin": _time,
    "end": _time,
    "seconds": _number,
    "bucket_ns": lambda value: _whole(value) and value > 0,
    "processes": lambda value: isinstance(value, list) and all(map(_process, value)),
    "looking_share": lambda value: value is None or _number(value),
    "own": _own,
    "lost": lambda value: isinstance(value, dict) and all(map(_whole, value.values())),
    "truncated": _texts,
    "not_covered": _texts,
    "warnings": _texts,
}
