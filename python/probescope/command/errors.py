from __future__ import annotations

from typing import Optional


class CommandError(Exception):
    """What went wrong, in one line for the user, and what to do about it."""

    def __init__(self, message: str, next_step: Optional[str] = None) -> None:
        super().__init__(message)
        self.next_step = next_step


class NotLoaded(CommandError):
    """The process has no probescope, or does not have it yet."""


class Usage(CommandError):
    """The command line was wrong."""
