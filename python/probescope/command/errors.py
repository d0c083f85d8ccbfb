from __future__ import annotations

from typing import Any, Optional


class CommandError(Exception):
    """What went wrong, in one line for the user, and what to do about it."""

    def __init__(self, message: str, next_step: Optional[str] = None) -> None:
        super().__init__(message)
        self.next_step = next_step


class NotLoaded(CommandError):
    """The process has no probescope, or does not have it yet."""


class Refused(CommandError):
    """Why a foreign process is not looked at. kind: "gone", "denied" (by the kernel), "malformed"
    (what it has makes no sense), "busy" (it is writing), "slow" (it was not read in time) or
    "other".
    """

    def __init__(self, kind: str, message: str, next_step: Optional[str] = None) -> None:
        super().__init__(message, next_step)
        self.kind = kind

    def __reduce__(self) -> Any:
        return Refused, (self.kind, str(self), self.next_step)


class Usage(CommandError):
    """The command line was wrong."""
