"""The width of a terminal, texts cut to fit it, and colours. The gem has the same in
lib/probescope/tracing/terminal.rb and shortened.rb.
"""

from __future__ import annotations

import os
import re
import shutil
import unicodedata
from typing import IO, List, Mapping, Optional, Sequence

from probescope.command.display import HOT, LEAST_WIDTH, NARROWEST, WARM

COLORS = ("auto", "always", "never")
# Escape codes: hot and warm for large shares, and one for warnings.
CODES = {"hot": "\x1b[1;31m", "warm": "\x1b[33m", "warning": "\x1b[33m"}
PLAIN = "\x1b[0m"
# From this share on, a cell is coloured.
HEAT = (("hot", HOT), ("warm", WARM))
ELLIPSIS = "…"
# "app/models/order.py:12"
PLACE = re.compile(r"(?P<folder>.*/)(?P<file>[^/]+)", re.DOTALL)


class Terminal:
    """width: in columns, or None when the output is not a terminal and nothing is shortened."""

    def __init__(
        self, output: "IO[str]", color: str = "auto", env: Optional[Mapping[str, str]] = None
    ) -> None:
        """color: one of COLORS. NO_COLOR (https://no-color.org) applies to "auto"."""
        env = os.environ if env is None else env
        is_terminal = output.isatty()
        self.width = max(_columns(output, env), NARROWEST) if is_terminal else None
        plain = env.get("NO_COLOR") or env.get("TERM") == "dumb"
        self._colored = color == "always" or (color == "auto" and is_terminal and not plain)

    def paint(self, text: str, kind: Optional[str]) -> str:
        """Colours the text. kind: of CODES; None leaves the text as it is."""
        return f"{CODES[kind]}{text}{PLAIN}" if kind and self._colored else text


def heat(share: Optional[float]) -> Optional[str]:
    """Returns the kind of CODES for a share, or None."""
    return next((kind for kind, least in HEAT if share is not None and share >= least), None)


def width(text: str) -> int:
    """The width of a text in a terminal, in columns."""
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1
        for one in text
    )


def narrowed(widths: Sequence[int], may: Sequence[bool], room: int) -> List[int]:
    """Returns the widths of columns, reduced until their sum is at most `room`.

    may: which columns may become narrower.
    """
    fixed = sum(one for one, narrower in zip(widths, may) if not narrower)
    narrow = [one for one, narrower in zip(widths, may) if narrower]
    most = max(narrow, default=0)
    while most > LEAST_WIDTH and fixed + sum(min(one, most) for one in narrow) > room:
        most -= 1
    return [min(one, most) if narrower else one for one, narrower in zip(widths, may)]


def shortened(text: str, room: int) -> str:
    """Cuts a text to `room` columns, in the middle, because the ends of a name say most. The file
    name and line at the end of a path are kept if there is room.
    """
    if width(text) <= room:
        return text
    match = PLACE.fullmatch(text)
    rest = room - width(match["file"]) - 2 if match else 0
    if match and rest > 0:
        return f"{_head(match['folder'], rest)}{ELLIPSIS}/{match['file']}"
    tail = (room - 1) // 2
    return f"{_head(text, room - 1 - tail)}{ELLIPSIS}{_head(text[::-1], tail)[::-1]}"


def _head(text: str, room: int) -> str:
    found = text[:room]
    while width(found) > room:
        found = found[:-1]
    return found


def _columns(output: "IO[str]", env: Mapping[str, str]) -> int:
    given = env.get("COLUMNS", "")
    if given.isascii() and given.isdigit() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(output.fileno()).columns or 80
    except (OSError, ValueError):
        return shutil.get_terminal_size().columns
