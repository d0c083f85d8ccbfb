"""Text and figures for output.

Text from a traced process is escaped: a class name may contain terminal escape codes.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Optional, Tuple

# Control characters, and characters that reorder or hide text on a terminal.
UNSAFE = re.compile(
    "[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
Units = Tuple[Tuple[str, int], ...]
UNITS: Units = (("ns", 1), ("us", 10**3), ("ms", 10**6), ("s", 10**9))
SIZES: Units = (("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30))
NAMED = {"\n": r"\n", "\r": r"\r", "\t": r"\t", "\x1b": r"\e"}


def clean(text: Any) -> str:
    """One line of printable text."""

    def escape(match: "re.Match[str]") -> str:
        code = ord(match[0])
        return NAMED.get(match[0]) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")

    return UNSAFE.sub(escape, str(text))


def without_mark(value: Any) -> Any:
    """Returns a value or a text of a program whose texts have room for 200 bytes, the same with each
    version: of one that has no room, bpftrace 0.27 has 200 bytes and "..", earlier ones have 199 bytes.
    """
    is_cut = isinstance(value, str) and len(value.encode(errors="replace")) > 200 and value.endswith("..")
    return value[:-3] if is_cut else value


def duration(ns: Optional[int]) -> str:
    """Three digits: "950 ns", "1.23 us", "12.3 ms", "123 s"."""
    return _scaled(ns, UNITS)


def size(number: Optional[int]) -> str:
    return _scaled(number, SIZES)


def count(number: Optional[int]) -> str:
    return "-" if number is None else f"{number:,}"


def share(part: Optional[float]) -> str:
    return "-" if part is None else f"{_fixed(half_up(part * 1000), 1)} %"


def decimal(number: Optional[float]) -> str:
    """ "12.3", "6,705"."""
    if number is None:
        return "-"
    tenths = half_up(number * 10)
    return _fixed(tenths, 1) if tenths < 10_000 else count(half_up(number))


def _scaled(number: Optional[int], units: Units) -> str:
    """Returns "-" for None.

    A number that rounds to four digits is shown in the next unit.
    """
    if number is None:
        return "-"
    unit, size = next((one for one in units if _rounded(number, one[1]) < 1000), units[-1])
    digits = (
        0 if size == 1 else next((some for some in (2, 1) if _rounded(number * 10**some, size) < 1000), 0)
    )
    return f"{_fixed(_rounded(number * 10**digits, size), digits)} {unit}"


def _rounded(part: int, whole: int) -> int:
    """part / whole. A half is rounded up, as in the gem: spec/fixtures/figures.json."""
    return (2 * part + whole) // (2 * whole)


def half_up(number: float) -> int:
    """Rounds a half up, as the gem does. Python's own round() takes the even digit."""
    return math.floor(number + 0.5)


def _fixed(number: int, digits: int) -> str:
    """1234, 2 -> "12.34" """
    text = str(number).rjust(digits + 1, "0")
    return f"{text[:-digits]}.{text[-digits:]}" if digits else text


def to_json(value: Any) -> str:
    """Returns ASCII JSON without control characters. json.dumps() escapes only 32 of them."""
    return json.dumps(value).replace("\x7f", "\\u007f")
