"""What bpftrace complains of, in words of ours, with its own behind them."""

from __future__ import annotations

from typing import List

from probescope.command.complaints import MEANINGS, NOISE
from probescope.command.errors import CommandError

MOST_LINES = 20


def complaint(text: str, what: str, next_step: str) -> CommandError:
    """An error for that text of bpftrace's.

    what: what it was to do. next_step: where the text is none that we know.
    """
    said = lines(text)
    if said and said[0].startswith("sudo: "):  # bpftrace never began
        step = "run the command as root, or as a user who may use sudo"
        return CommandError(f"cannot get the privilege to trace: {'; '.join(said)}", step)
    meaning, step = next(
        ((meaning, step) for pattern, meaning, step in MEANINGS if any(map(pattern.search, said))),
        ("", next_step),
    )
    more = len(said) - MOST_LINES
    shown = [*said[:MOST_LINES], f"and {more} more lines"] if more > 0 else said
    own = f"it says: {'; '.join(shown)}" if said else "it ended by itself"
    return CommandError(f"bpftrace {what}{': ' if meaning else ''}{meaning}; {own}", step)


def lines(text: str) -> List[str]:
    """Without noise."""
    return [line for line in map(str.strip, text.splitlines()) if line and not NOISE.search(line)]
