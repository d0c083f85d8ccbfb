"""Explains bpftrace's error messages, and quotes them."""

from __future__ import annotations

from typing import List

from probescope.command.complaints import MEANINGS, NOISE
from probescope.command.errors import CommandError

MOST_LINES = 20


def complaint(text: str, what: str, next_step: str) -> CommandError:
    """Returns an error for bpftrace's output.

    what: what bpftrace failed to do. next_step: used when the output matches no known message.
    """
    said = lines(text)
    if said and said[0].startswith("sudo: "):  # bpftrace did not start
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
    """Returns the lines that are not noise."""
    return [line for line in map(str.strip, text.splitlines()) if line and not NOISE.search(line)]
