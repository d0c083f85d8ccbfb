"""Text and figures to show. What came from a target is made safe: a class may be named like an escape code."""

from __future__ import annotations

import json
import re
from typing import Any

# The version of the JSON's shape, which docs/schema describes.
SCHEMA = 1
# Controls, and what reorders or hides text on a terminal.
UNSAFE = re.compile(
    "[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
UNITS = (("ns", 1), ("us", 10**3), ("ms", 10**6), ("s", 10**9))
NAMED = {"\n": r"\n", "\r": r"\r", "\t": r"\t", "\x1b": r"\e"}


def clean(text: Any) -> str:
    """One line of printable text."""

    def escape(match: "re.Match[str]") -> str:
        code = ord(match[0])
        return NAMED.get(match[0]) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")

    return UNSAFE.sub(escape, str(text))


def duration(ns: int) -> str:
    """Three digits: "950 ns", "1.23 us", "12.3 ms", "123 s"."""
    unit, size = next((one for one in UNITS if ns < 1000 * one[1]), UNITS[-1])
    value = ns / size
    digits = 0 if size == 1 or value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f} {unit}"


def to_json(value: Any) -> str:
    """In ASCII, with nothing in it that a terminal obeys: JSON itself escapes only the first 32 controls."""
    return json.dumps(value).replace("\x7f", "\\u007f")
