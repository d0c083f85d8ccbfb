from __future__ import annotations

from typing import Any, Optional


class CommandError(Exception):
    """An error message of one line for the user, and the next step."""

    def __init__(self, message: str, next_step: Optional[str] = None) -> None:
        super().__init__(message)
        self.next_step = next_step


class NotLoaded(CommandError):
    """The process has not loaded probescope, or not yet."""


class Refused(CommandError):
    """A foreign process was not read. kind: "gone", "denied" (by the kernel), "malformed" (its data
    is not valid), "busy" (it is writing its data), "slow" (it was not read in time) or "other".
    """

    def __init__(self, kind: str, message: str, next_step: Optional[str] = None) -> None:
        super().__init__(message, next_step)
        self.kind = kind

    def __reduce__(self) -> Any:
        return Refused, (self.kind, str(self), self.next_step)


class Usage(CommandError):
    """The command line is wrong."""
