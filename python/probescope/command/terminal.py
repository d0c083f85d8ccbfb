"""How wide a terminal is, what it has room for, and whether what it shows may have colours. As
lib/probescope/host/terminal.rb and shortened.rb have it.
"""

from __future__ import annotations

import os
import re
import shutil
import unicodedata
from typing import IO, List, Mapping, Optional, Sequence

COLORS = ("auto", "always", "never")
# Escape codes: of shares that are large, and of warnings.
CODES = {"hot": "\x1b[1;31m", "warm": "\x1b[33m", "warning": "\x1b[33m"}
PLAIN = "\x1b[0m"
# From which share on a cell is coloured.
HEAT = (("hot", 0.2), ("warm", 0.05))
# A narrower table has no room for names.
NARROWEST = 60
ELLIPSIS = "…"
# No column becomes narrower.
LEAST = 16
# "app/models/order.py:12"
PLACE = re.compile(r"(?P<folder>.*/)(?P<file>[^/]+)", re.DOTALL)


class Terminal:
    """width: columns; None where the output is no terminal, and nothing is shortened."""

    def __init__(
        self, output: "IO[str]", color: str = "auto", env: Optional[Mapping[str, str]] = None
    ) -> None:
        """color: one of COLORS. NO_COLOR (https://no-color.org) holds for auto."""
        env = os.environ if env is None else env
        is_terminal = output.isatty()
        self.width = max(_columns(output, env), NARROWEST) if is_terminal else None
        plain = env.get("NO_COLOR") or env.get("TERM") == "dumb"
        self._colored = color == "always" or (color == "auto" and is_terminal and not plain)

    def paint(self, text: str, kind: Optional[str]) -> str:
        """In the colour of a kind of CODES, or as it is for None."""
        return f"{CODES[kind]}{text}{PLAIN}" if kind and self._colored else text


def heat(share: Optional[float]) -> Optional[str]:
    """For a share: a kind of CODES."""
    return next((kind for kind, least in HEAT if share is not None and share >= least), None)


def width(text: str) -> int:
    """Columns of a terminal."""
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1
        for one in text
    )


def narrowed(widths: Sequence[int], may: Sequence[bool], room: int) -> List[int]:
    """The widths of columns, so that all of them together take no more than room.

    may: which of them may become narrower.
    """
    fixed = sum(one for one, narrower in zip(widths, may) if not narrower)
    narrow = [one for one, narrower in zip(widths, may) if narrower]
    most = max(narrow, default=0)
    while most > LEAST and fixed + sum(min(one, most) for one in narrow) > room:
        most -= 1
    return [min(one, most) if narrower else one for one, narrower in zip(widths, may)]


def shortened(text: str, room: int) -> str:
    """Of at most so many columns: cut in the middle, where names of functions and files say least.
    Of a file's path the name and the line stay, if there is room.
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
