"""The dates of measurements in docs/performance.md, for benchmarks whose tables get one column or
row at a time. performance_page.rb does the same in Ruby.
"""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATED = re.compile(r"^Measured on .*?(?=\n\n)", re.MULTILINE | re.DOTALL)


def _commit() -> str:
    words = ["git", "-C", str(ROOT), "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


def date() -> str:
    """Returns the date of a column or a row, with the commit: "2026-11-26, commit 1a2b3c4d"."""
    return f"{time.strftime('%Y-%m-%d')}, commit {_commit()}"


def line(known: str = "", each: str = "") -> str:
    """Returns the line below the heading of a section.

    known: the present section. each: "columns" or "rows", which get dates of their own. The
    present line stays, because it dates the columns or rows that have none.
    """
    found = DATED.search(known)
    text = found[0] if found else f"Measured on {time.strftime('%Y-%m-%d')}, on commit {_commit()}."
    own = f"except for {each} with a date of their own"
    if not each or own in " ".join(text.split()):
        return text
    return f"{text[:-1]}, {own}."
